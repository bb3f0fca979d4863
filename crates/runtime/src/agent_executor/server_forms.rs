//! Questions of MCP servers as parts of a task's message, and the answers in the next message.
//!
//! A question has a part with its text, and a part with its data: the server, the mode (`form` or `url`), and the JSON
//! schema of the form or the page to visit. The answer is a part with data, in the form of MCP:
//!
//! ```json
//! {"parts": [{"data": {"action": "accept", "content": {"name": "Ada"}}, "metadata": {"question_id": "form_1"}}]}
//! ```
//!
//! A text also answers a question: the JSON of the answer, the value of the only field, or `decline` or `cancel`; for a
//! question without a field, `yes` or `no`.

use allstop_core::ids::QuestionId;
use allstop_session::{AnswerResult, FormClient, OpenServerQuestion, Session};
use allstop_task::TaskMessage;
use allstop_task::model::{JsonMap, MessagePart, PartContent};
use allstop_tools::{FormAnswer, WantedInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::message_text::text_of_part;
use super::question_id::{QUESTION_ID, has_question_id, named_question};

/// Questions of servers that a turn asks the client of its task. While this value exists, questions stay open.
#[derive(Debug)]
pub(super) struct TaskForms {
    _client: FormClient,
    /// Questions that the client of the task was asked last. Its answer counts for no other question.
    asked: Vec<OpenServerQuestion>,
    /// Questions with an invalid answer, and the valid values.
    invalid: Vec<(QuestionId, String)>,
}

impl TaskForms {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            _client: session.form_client(),
            asked: Vec::new(),
            invalid: Vec::new(),
        }
    }

    /// Creates the parts of a message that asks these questions.
    pub(super) fn ask(&mut self, questions: Vec<OpenServerQuestion>) -> Vec<MessagePart> {
        let invalid = std::mem::take(&mut self.invalid);
        self.asked = questions;
        let parts = self.asked.iter().flat_map(|open| {
            let why = invalid.iter().find(|(id, _)| *id == open.id);
            parts_of(open, why.map(|(_, why)| why.as_str()))
        });
        parts.collect()
    }

    /// Sends the client's answers to the questions that the client was asked. Returns false if the message contains no
    /// valid answer. `is_alone` is true if the client was asked no other question.
    pub(super) fn answer(
        &mut self,
        message: &TaskMessage,
        session: &Session,
        is_alone: bool,
    ) -> bool {
        let asked = std::mem::take(&mut self.asked);
        let mut has_answers = false;
        for (id, reply) in replies_in(message, &asked, is_alone) {
            match reply {
                Ok(answer) => {
                    has_answers = true;
                    if session.answer_server(&id, answer) != AnswerResult::Taken {
                        tracing::debug!(%id, "an answer came too late");
                    }
                }
                Err(why) => self.invalid.push((id, why)),
            }
        }
        has_answers
    }
}

/// Metadata of a question.
pub(super) fn fields_of(open: &OpenServerQuestion) -> JsonMap {
    let question = &open.question;
    JsonMap::from_iter([
        (QUESTION_ID.to_owned(), open.id.as_str().into()),
        ("mcp_server".to_owned(), (*question.server).into()),
        ("call_id".to_owned(), question.call_id.as_str().into()),
    ])
}

fn parts_of(open: &OpenServerQuestion, invalid: Option<&str>) -> [MessagePart; 2] {
    let question = &open.question;
    let mut lines = Vec::new();
    if let Some(why) = invalid {
        lines.push(format!("The last answer was not valid ({why})."));
    }
    let (server, message) = (&question.server, &question.message);
    lines.push(format!("The MCP server `{server}` asks: {message}"));
    let mode = match &question.wanted {
        WantedInput::Url(url) => {
            lines.push(format!(
                "Visit {url}, and then answer `yes`; or answer `no`."
            ));
            "url"
        }
        WantedInput::Form(fields) => {
            lines.extend(fields.iter().map(|field| {
                let optional = if field.required { "" } else { " (optional)" };
                format!("{}{optional}", field.expected())
            }));
            let how = match fields.len() {
                0 => "Answer `yes` or `no`.",
                1 => "Answer with the value, or with `decline`.",
                _ => {
                    "Answer with the data {\"action\": \"accept\", \"content\": {FIELD: VALUE, …}}, or with `decline`."
                }
            };
            lines.push(how.to_owned());
            "form"
        }
    };
    let mut data = json!({
        "server": question.server,
        "mode": mode,
        "message": question.message,
    });
    if let Some(schema) = question.wanted.schema() {
        data["requestedSchema"] = schema;
    }
    if let WantedInput::Url(url) = &question.wanted {
        data["url"] = (&**url).into();
    }
    let data = MessagePart {
        content: PartContent::Data(data),
        ..MessagePart::text("")
    };
    [MessagePart::text(lines.join("\n")), data].map(|part| MessagePart {
        metadata: fields_of(open),
        ..part
    })
}

type FormReplies = Vec<(QuestionId, Result<FormAnswer, String>)>;

/// Returns the answers in a message to the questions that its client was asked. A message without an id answers the only
/// question.
fn replies_in(message: &TaskMessage, asked: &[OpenServerQuestion], is_alone: bool) -> FormReplies {
    let reply = |open: &OpenServerQuestion, parts: &[MessagePart]| {
        (open.id.clone(), reply_in(parts, &open.question.wanted))
    };
    let ids = asked.iter().map(|open| &open.id);
    if message.parts.iter().any(has_question_id) {
        let replies = message.parts.iter().filter_map(|part| {
            let id = named_question(&part.metadata, ids.clone())?;
            let open = asked.iter().find(|open| open.id == id)?;
            Some(reply(open, std::slice::from_ref(part)))
        });
        return replies.collect();
    }
    let only = if message.metadata.contains_key(QUESTION_ID) {
        let id = named_question(&message.metadata, ids);
        asked.iter().find(|open| Some(&open.id) == id.as_ref())
    } else {
        asked.first().filter(|_| is_alone && asked.len() == 1)
    };
    let only = only.map(|open| reply(open, &message.parts));
    only.into_iter().collect()
}

/// Answer in the form of MCP.
#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
enum FormReply {
    Accept {
        #[serde(default)]
        content: Map<String, Value>,
    },
    Decline,
    Cancel,
}

fn reply_in(parts: &[MessagePart], wanted: &WantedInput) -> Result<FormAnswer, String> {
    let data = parts.iter().find_map(|part| match &part.content {
        PartContent::Data(data) => Some(data.clone()),
        _ => None,
    });
    let text: Vec<String> = parts.iter().map(text_of_part).collect();
    let text = text.join("\n\n");
    let text = text.trim();
    let data = data.or_else(|| serde_json::from_str(text).ok().filter(Value::is_object));
    if let Some(data) = data {
        return match FormReply::deserialize(data) {
            Ok(FormReply::Accept { content }) => wanted.completed(content).map(FormAnswer::Accept),
            Ok(FormReply::Decline) => Ok(FormAnswer::Decline),
            Ok(FormReply::Cancel) => Ok(FormAnswer::Cancel),
            Err(_) => Err(
                "an object with `action` (`accept`, `decline` or `cancel`) and `content`"
                    .to_owned(),
            ),
        };
    }
    let word = text.trim_end_matches(['.', '!']).to_lowercase();
    match (word.as_str(), fields_len(wanted)) {
        ("decline", _) | ("no" | "n" | "deny", 0) => Ok(FormAnswer::Decline),
        ("cancel", _) => Ok(FormAnswer::Cancel),
        ("yes" | "y" | "accept" | "allow", 0) => Ok(FormAnswer::Accept(Map::new())),
        (_, 0) => Err("`yes` or `no`".to_owned()),
        (_, 1) => value_of(text, wanted),
        _ => Err("a part with data; a text cannot fill in several fields".to_owned()),
    }
}

fn fields_len(wanted: &WantedInput) -> usize {
    match wanted {
        WantedInput::Form(fields) => fields.len(),
        WantedInput::Url(_) => 0,
    }
}

/// The answer with this text as the value of the first field.
fn value_of(text: &str, wanted: &WantedInput) -> Result<FormAnswer, String> {
    let mut values = Map::new();
    if let WantedInput::Form(fields) = wanted
        && let Some(field) = fields.first()
        && let Some(value) = field.parse(text)?
    {
        values.insert(field.name.clone(), value);
    }
    wanted.completed(values).map(FormAnswer::Accept)
}

#[cfg(test)]
mod tests {
    use allstop_tools::server_question::FormField;

    use super::super::message_text::agent_message;
    use super::*;

    fn form(fields: &[(&str, &str)]) -> WantedInput {
        let field = |(name, kind): &(&str, &str)| {
            FormField::of(name, &json!({ "type": kind }), true).expect("it can be typed")
        };
        WantedInput::Form(fields.iter().map(field).collect())
    }

    fn reply(part: MessagePart, wanted: &WantedInput) -> Result<FormAnswer, String> {
        reply_in(&[part], wanted)
    }

    fn text(text: &str, wanted: &WantedInput) -> Result<FormAnswer, String> {
        reply(MessagePart::text(text), wanted)
    }

    fn accepted(values: &Value) -> FormAnswer {
        FormAnswer::Accept(values.as_object().expect("an object").clone())
    }

    #[test]
    fn text_answers_a_question_with_at_most_one_field() {
        let page = WantedInput::Url("https://a.example/".into());
        for consent in [&page, &form(&[])] {
            assert_eq!(text("Yes.", consent), Ok(accepted(&json!({}))));
            assert_eq!(text("no", consent), Ok(FormAnswer::Decline));
            assert!(text("perhaps", consent).is_err());
        }
        let one = form(&[("name", "string")]);
        assert_eq!(text("No", &one), Ok(accepted(&json!({"name": "No"}))));
        assert_eq!(text("decline", &one), Ok(FormAnswer::Decline));
        assert_eq!(text("cancel", &one), Ok(FormAnswer::Cancel));
        let two = form(&[("a", "string"), ("b", "string")]);
        assert!(text("x", &two).is_err());
    }

    #[test]
    fn data_answers_a_form_and_its_values_are_checked() {
        let two = form(&[("age", "integer"), ("name", "string")]);
        let data = |value: Value| MessagePart {
            content: PartContent::Data(value),
            ..MessagePart::text("")
        };
        let values = json!({"age": 3, "name": "Ada"});
        let valid = json!({"action": "accept", "content": values});
        assert_eq!(reply(data(valid.clone()), &two), Ok(accepted(&values)));
        assert_eq!(text(&valid.to_string(), &two), Ok(accepted(&values)));
        let decline = data(json!({"action": "decline"}));
        assert_eq!(reply(decline, &two), Ok(FormAnswer::Decline));
        let missing = data(json!({"action": "accept", "content": {"age": 3}}));
        assert!(reply(missing, &two).is_err_and(|why| why.contains("`name`")));
        let unknown = data(json!({"action": "maybe"}));
        assert!(reply(unknown, &two).is_err_and(|why| why.contains("`decline`")));
    }

    #[test]
    fn message_without_an_id_answers_only_a_single_question() {
        let open = |id: &str| OpenServerQuestion {
            id: QuestionId::from(id),
            agents: Vec::new(),
            question: allstop_tools::ServerQuestion {
                session_id: "s".into(),
                call_id: "c".into(),
                server: "m".into(),
                message: "?".into(),
                wanted: form(&[]),
            },
        };
        let both = [open("form_1"), open("form_2")];
        let yes = agent_message("yes");
        assert!(replies_in(&yes, &both, true).is_empty());
        assert!(replies_in(&yes, &both[..1], false).is_empty());
        let first = Ok(accepted(&json!({})));
        let expected = [("form_1".into(), first)];
        assert_eq!(replies_in(&yes, &both[..1], true), expected);
        let mut named = yes;
        named.metadata.insert(QUESTION_ID.into(), "form_1".into());
        assert_eq!(replies_in(&named, &both, false), expected);
        named.metadata.insert(QUESTION_ID.into(), "form_9".into());
        assert!(replies_in(&named, &both, false).is_empty());
    }
}
