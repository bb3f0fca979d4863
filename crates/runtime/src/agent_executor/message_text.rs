//! Conversion of a task's message to text for the model, and of a text to a message.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::MessageId;
use allstop_task::TaskMessage;
use allstop_task::model::{MessagePart, MessageSender, PartContent};
use ulid::Ulid;

/// Returns the text of a message, with its parts as paragraphs. JSON values are included as text; files are only named.
pub(super) fn text_of(message: &TaskMessage) -> String {
    let parts: Vec<String> = message.parts.iter().map(text_of_part).collect();
    parts.join("\n\n")
}

pub(super) fn text_of_part(part: &MessagePart) -> String {
    match &part.content {
        PartContent::Text(text) => text.to_string(),
        PartContent::Data(value) => value.to_string(),
        PartContent::Url(url) => format!("[{} at {url}]", description_of_file(part)),
        PartContent::Raw(base64) => {
            let bytes = base64.trim_end_matches('=').len() * 3 / 4;
            let file = description_of_file(part);
            format!("[{file}, {bytes} bytes; its content is not available]")
        }
    }
}

/// Describes a file, such as `file "plan.pdf" (application/pdf)`.
fn description_of_file(part: &MessagePart) -> String {
    let mut text = "file".to_owned();
    if let Some(name) = &part.filename {
        // Writing to a string never fails.
        let _ = write!(text, " {name:?}");
    }
    if let Some(media_type) = &part.media_type {
        let _ = write!(text, " ({media_type})");
    }
    text
}

/// Creates a message of the agent with this text.
pub(super) fn agent_message(text: impl Into<Arc<str>>) -> TaskMessage {
    let id = MessageId::new(Ulid::generate().to_string());
    TaskMessage::text(id, MessageSender::Agent, text)
}

#[cfg(test)]
mod tests {
    use allstop_task::model::JsonMap;
    use serde_json::json;

    use super::*;

    fn message(parts: Vec<MessagePart>) -> TaskMessage {
        TaskMessage {
            parts,
            ..TaskMessage::text("m1", MessageSender::User, "")
        }
    }

    fn part(content: PartContent) -> MessagePart {
        MessagePart {
            content,
            media_type: Some("text/plain".into()),
            filename: Some("a.txt".into()),
            metadata: JsonMap::new(),
        }
    }

    #[test]
    fn parts_become_paragraphs() {
        let parts = vec![
            MessagePart::text("Read these."),
            MessagePart {
                content: PartContent::Data(json!({"n": 1})),
                ..MessagePart::text("")
            },
            part(PartContent::Url("https://example.com/a.txt".into())),
            part(PartContent::Raw("aGk=".into())),
        ];
        assert_eq!(
            text_of(&message(parts)),
            "Read these.\n\n{\"n\":1}\n\n[file \"a.txt\" (text/plain) at https://example.com/a.txt]\n\n\
             [file \"a.txt\" (text/plain), 2 bytes; its content is not available]"
        );
    }
}
