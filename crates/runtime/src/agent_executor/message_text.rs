//! Conversion of a task's message to text for the model, and to the answer of a permission question.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::MessageId;
use allstop_session::OpenQuestion;
use allstop_task::TaskMessage;
use allstop_task::model::{JsonMap, MessagePart, MessageSender, PartContent};
use allstop_tools::permission::Doubt;
use serde_json::Value;
use ulid::Ulid;

/// Returns the text of a message, with its parts as paragraphs. JSON values are included as text; files are only named.
pub(super) fn text_of(message: &TaskMessage) -> String {
    let parts: Vec<String> = message.parts.iter().map(text_of_part).collect();
    parts.join("\n\n")
}

fn text_of_part(part: &MessagePart) -> String {
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

/// Answer of a client to a permission question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PermissionReply {
    Allow,
    Deny,
    /// A denial with a text for the model.
    DenyWith(String),
}

impl PermissionReply {
    pub(super) fn of(message: &TaskMessage) -> Self {
        let text = text_of(message);
        let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
        match word.as_str() {
            "yes" | "y" | "allow" => Self::Allow,
            "no" | "n" | "deny" | "" => Self::Deny,
            _ => Self::DenyWith(text),
        }
    }
}

/// Creates a message of the agent with this text.
pub(super) fn agent_message(text: impl Into<Arc<str>>) -> TaskMessage {
    let id = MessageId::new(Ulid::generate().to_string());
    TaskMessage::text(id, MessageSender::Agent, text)
}

/// Creates the message of the agent that requests a permission from the client.
pub(super) fn question_message(open: &OpenQuestion) -> TaskMessage {
    let question = &open.question;
    let text = format!("May this call run? {}\nAnswer yes or no.", question.text);
    let mut fields = JsonMap::new();
    let mut add = |name: &str, value: &str| fields.insert(name.to_owned(), Value::from(value));
    add("question_id", open.id.as_str());
    add("tool", &question.tool);
    add("call_id", question.call_id.as_str());
    if let Some(doubt) = &question.doubt {
        match doubt {
            Doubt::Rule(rule) => drop(add("denying_rule", &rule.to_string())),
            Doubt::Repetition { before, rule } => {
                add("may_have_run", before);
                if let Some(rule) = rule {
                    add("denying_rule", &rule.to_string());
                }
            }
        }
    }
    TaskMessage {
        metadata: fields,
        ..agent_message(text)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn only_plain_words_allow_a_call() {
        let answer = |text: &str| PermissionReply::of(&message(vec![MessagePart::text(text)]));
        for word in ["yes", " Yes.\n", "ALLOW", "y", "allow!"] {
            assert_eq!(answer(word), PermissionReply::Allow, "{word}");
        }
        for word in ["no", "Deny", "n", ""] {
            assert_eq!(answer(word), PermissionReply::Deny, "{word}");
        }
        for text in ["yes, but later", "not yes", "use staging"] {
            assert_eq!(answer(text), PermissionReply::DenyWith(text.into()));
        }
    }
}
