//! Ids of questions in the messages of a task.

use allstop_core::ids::QuestionId;
use allstop_task::model::{JsonMap, MessagePart};

/// Key of a question's id in the metadata of its part, or of a message with one question.
pub(super) const QUESTION_ID: &str = "question_id";

/// True if the part belongs to a question.
pub(super) fn has_question_id(part: &MessagePart) -> bool {
    part.metadata.contains_key(QUESTION_ID)
}

/// The question in the metadata, if its client was asked.
pub(super) fn named_question<'a>(
    metadata: &JsonMap,
    mut asked: impl Iterator<Item = &'a QuestionId>,
) -> Option<QuestionId> {
    let id = metadata.get(QUESTION_ID)?.as_str()?;
    asked.find(|asked| asked.as_str() == id).cloned()
}
