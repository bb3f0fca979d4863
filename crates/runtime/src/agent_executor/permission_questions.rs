//! Permission questions of a turn as a message of its task, and the answers in the next message.
//!
//! The questions of parallel calls come in one message with one part each. The metadata of a part contains the id of its
//! question. The client answers all of them with one word, or some of them with one part each, which repeats the id:
//!
//! ```json
//! {"parts": [
//!     {"text": "yes", "metadata": {"question_id": "q_1"}},
//!     {"text": "no", "metadata": {"question_id": "q_2"}}
//! ]}
//! ```

use std::sync::Arc;

use allstop_core::ids::QuestionId;
use allstop_session::OpenQuestion;
use allstop_task::TaskMessage;
use allstop_task::model::{JsonMap, MessagePart};
use allstop_tools::permission::Doubt;
use serde_json::Value;

use super::message_text::{agent_message, text_of, text_of_part};
use super::question_id::{QUESTION_ID, has_question_id, named_question};

/// Answer of a client to a permission question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PermissionReply {
    Allow,
    Deny,
    /// A denial with a text for the model.
    DenyWith(String),
}

impl PermissionReply {
    fn of(text: String) -> Self {
        let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
        match word.as_str() {
            "yes" | "y" | "allow" => Self::Allow,
            "no" | "n" | "deny" | "" => Self::Deny,
            _ => Self::DenyWith(text),
        }
    }
}

/// Returns the answers in a message to the questions that its client was asked. If no id is in the message, its text
/// answers all of them. A question without an answer stays open.
pub(super) fn replies_in(
    message: &TaskMessage,
    asked: &[QuestionId],
) -> Vec<(QuestionId, PermissionReply)> {
    let whole = || PermissionReply::of(text_of(message));
    if message.parts.iter().any(has_question_id) {
        let replies = message.parts.iter().filter_map(|part| {
            let id = named_question(&part.metadata, asked.iter())?;
            Some((id, PermissionReply::of(text_of_part(part))))
        });
        return replies.collect();
    }
    if message.metadata.contains_key(QUESTION_ID) {
        let id = named_question(&message.metadata, asked.iter());
        return id.map(|id| (id, whole())).into_iter().collect();
    }
    asked.iter().map(|id| (id.clone(), whole())).collect()
}

/// Creates the message of the agent that requests these permissions from the client.
pub(super) fn permissions_message(questions: &[OpenQuestion]) -> TaskMessage {
    let message = agent_message("");
    if let [only] = questions {
        let text = format!(
            "May this call run? {}\nAnswer yes or no.",
            only.question.text
        );
        let part = MessagePart {
            metadata: fields_of(only),
            ..MessagePart::text(text)
        };
        return TaskMessage {
            metadata: fields_of(only),
            parts: vec![part],
            ..message
        };
    }
    let part_of = |open: &OpenQuestion| MessagePart {
        metadata: fields_of(open),
        ..MessagePart::text(format!("May this call run? {}", open.question.text))
    };
    let mut parts: Vec<_> = questions.iter().map(part_of).collect();
    let remedy = "Answer yes or no for all of these calls, or with one part for each question_id.";
    parts.push(MessagePart::text(remedy));
    TaskMessage { parts, ..message }
}

fn fields_of(open: &OpenQuestion) -> JsonMap {
    let question = &open.question;
    let mut fields = JsonMap::new();
    let mut add = |name: &str, value: &str| fields.insert(name.to_owned(), Value::from(value));
    add(QUESTION_ID, open.id.as_str());
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
    fields
}

/// Joins the texts of denials for the model; `None` if there is no text.
pub(super) fn text_for_model(replies: &[(QuestionId, PermissionReply)]) -> Option<Arc<str>> {
    let mut texts: Vec<&str> = Vec::new();
    for (_, reply) in replies {
        // The text of an answer to all questions is sent once.
        if let PermissionReply::DenyWith(text) = reply
            && !texts.contains(&text.as_str())
        {
            texts.push(text);
        }
    }
    (!texts.is_empty()).then(|| texts.join("\n\n").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> PermissionReply {
        PermissionReply::of(text.to_owned())
    }

    fn asked() -> [QuestionId; 2] {
        ["q_1", "q_2"].map(|id| QuestionId::from(id.to_owned()))
    }

    fn part(text: &str, id: &str) -> MessagePart {
        let mut part = MessagePart::text(text);
        part.metadata.insert(QUESTION_ID.into(), id.into());
        part
    }

    fn message(parts: Vec<MessagePart>) -> TaskMessage {
        TaskMessage {
            parts,
            ..agent_message("")
        }
    }

    #[test]
    fn only_plain_words_allow_a_call() {
        for word in ["yes", " Yes.\n", "ALLOW", "y", "allow!"] {
            assert_eq!(reply(word), PermissionReply::Allow, "{word}");
        }
        for word in ["no", "Deny", "n", ""] {
            assert_eq!(reply(word), PermissionReply::Deny, "{word}");
        }
        for text in ["yes, but later", "not yes", "use staging"] {
            assert_eq!(reply(text), PermissionReply::DenyWith(text.into()));
        }
    }

    #[test]
    fn answer_without_an_id_answers_all_questions() {
        let [first, second] = asked();
        let message = agent_message("yes");
        let expected = [first, second].map(|id| (id, PermissionReply::Allow));
        assert_eq!(replies_in(&message, &asked()), expected);
    }

    #[test]
    fn answer_with_an_id_answers_only_its_question() {
        let [first, second] = asked();
        let both = message(vec![part("no", "q_2"), part("yes", "q_1")]);
        let expected = [
            (second.clone(), PermissionReply::Deny),
            (first, PermissionReply::Allow),
        ];
        assert_eq!(replies_in(&both, &asked()), expected);
        let mut whole = agent_message("yes");
        whole.metadata.insert(QUESTION_ID.into(), "q_2".into());
        let expected = [(second, PermissionReply::Allow)];
        assert_eq!(replies_in(&whole, &asked()), expected);
    }

    /// A question of another turn, or an id of another type, must not allow any call.
    #[test]
    fn answer_with_an_unknown_id_answers_nothing() {
        let mut number = MessagePart::text("yes");
        number.metadata.insert(QUESTION_ID.into(), 1.into());
        for unknown in [part("yes", "q_3"), part("yes", ""), number] {
            let beside = MessagePart::text("yes");
            let message = message(vec![unknown, beside]);
            assert!(replies_in(&message, &asked()).is_empty(), "{message:?}");
        }
    }

    #[test]
    fn text_for_the_model_is_sent_once() {
        let message = agent_message("use staging");
        let text = text_for_model(&replies_in(&message, &asked()));
        assert_eq!(text.as_deref(), Some("use staging"));
        let message = self::message(vec![part("a", "q_1"), part("b", "q_2")]);
        let text = text_for_model(&replies_in(&message, &asked()));
        assert_eq!(text.as_deref(), Some("a\n\nb"));
        assert_eq!(text_for_model(&[]), None);
    }
}
