//! A question to the model outside the conversation.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_core::{Cause, SessionId, StopReason, Usage};
use allstop_scope::Scope;

use crate::agent::Agent;
use crate::error::TurnError;
use crate::event::EventSink;
use crate::history::RunHistory;
use crate::run::RunRequest;
use crate::settings::Settings;
use crate::toolbox::Toolbox;

/// Reason why the model returned no answer to a question outside the conversation.
#[derive(Debug, thiserror::Error)]
pub enum PlainAnswerError {
    /// A stop came before the answer.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The provider failed or refused the request.
    #[error(transparent)]
    Failed(TurnError),
    /// The model returned no text.
    #[error("the model returned no answer: {0}")]
    NoAnswer(String),
}

/// Asks the model of this agent a question about the conversation, with the system prompt and without tools. The
/// conversation does not change. The usage counts also without an answer.
///
/// # Cancel safety
/// Dropping the future stops the model call, and its usage is lost.
pub async fn answer_plainly(
    agent: &Agent,
    scope: &Scope,
    session_id: &SessionId,
    conversation: Arc<Conversation>,
    question: &str,
) -> (Result<Arc<str>, PlainAnswerError>, Usage) {
    let plain = agent.plain();
    let settings = Settings {
        system: agent.settings().system.clone(),
        ..plain.settings().clone()
    };
    let plain = plain.with(Toolbox::default(), settings);
    ask_once(&plain, scope, session_id, conversation, question).await
}

/// Runs one turn of an agent without tools, outside the conversation.
pub(crate) async fn ask_once(
    plain: &Agent,
    scope: &Scope,
    session_id: &SessionId,
    conversation: Arc<Conversation>,
    question: &str,
) -> (Result<Arc<str>, PlainAnswerError>, Usage) {
    let history = RunHistory::bare(session_id.clone(), conversation);
    let request = RunRequest::new(history, question);
    let run = plain.start(scope, request, EventSink::none());
    let turn = match run.finish().await {
        Ok(mut outcome) => outcome.turns.pop(),
        Err(_) => None,
    };
    let no_answer = |why: &str| Err(PlainAnswerError::NoAnswer(why.to_owned()));
    let Some(turn) = turn else {
        return (no_answer("the engine was lost"), Usage::default());
    };
    let answer = match (turn.stop_reason, turn.cause, turn.error) {
        (StopReason::Completed, ..) if !turn.output.trim().is_empty() => Ok(turn.output),
        (StopReason::Completed, ..) => no_answer("an empty text"),
        (_, _, Some(error)) => Err(PlainAnswerError::Failed(error)),
        (_, Some(cause), _) => Err(PlainAnswerError::Stopped(cause)),
        (reason, ..) => no_answer(reason.as_str()),
    };
    (answer, turn.usage)
}
