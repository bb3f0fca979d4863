//! Questions of tools' servers in a chat. The user answers a form with one command for each field.

use std::collections::VecDeque;

use allstop_core::ids::QuestionId;
use allstop_session::{FormClient, OpenServerQuestion, Session};
use allstop_terminal::escape_question;
use allstop_tools::server_question::{FormAnswer, FormField, WantedInput};
use serde_json::{Map, Value};

use crate::chat::said::Said;

/// Open questions of servers. The first one is shown.
#[derive(Debug)]
pub(super) struct ServerForms {
    open: VecDeque<OpenServerQuestion>,
    /// Values of the shown form, and the number of its fields that are done.
    values: Map<String, Value>,
    done: usize,
    /// `None` if the input is not a terminal: a program that writes to the chat cannot read the form.
    _client: Option<FormClient>,
}

impl ServerForms {
    /// Creates the questions of a session. The user can answer them if `types` is true.
    pub(super) fn of(session: &Session, types: bool) -> Self {
        Self {
            open: VecDeque::new(),
            values: Map::new(),
            done: 0,
            _client: types.then(|| session.form_client()),
        }
    }

    /// Adds a question. Returns the text to show now; `None` if another question is shown.
    pub(super) fn asked(&mut self, question: OpenServerQuestion) -> Option<Said> {
        if self.open.iter().any(|open| open.id == question.id) {
            return None;
        }
        self.open.push_back(question);
        (self.open.len() == 1).then(|| self.begin()).flatten()
    }

    /// Removes a question. Returns the text of the next question to show, if the removed question was shown.
    pub(super) fn closed(&mut self, id: &QuestionId) -> Option<Said> {
        let position = self.open.iter().position(|open| open.id == *id)?;
        drop(self.open.remove(position));
        (position == 0).then(|| self.begin()).flatten()
    }

    /// Finds changes after missed events. Returns the text of the question to show.
    pub(super) fn catch_up(&mut self, session: &Session) -> Option<Said> {
        let shown = self.open.front().map(|open| open.id.clone());
        self.open = session.server_questions().into();
        let first = self.open.front().map(|open| open.id.clone());
        (first != shown).then(|| self.begin()).flatten()
    }

    /// Handles `/answer TEXT`, and returns the text to show. Without a text, the field keeps its default value.
    pub(super) fn answer(&mut self, typed: &str, session: &Session) -> Result<String, String> {
        let open = self.open.front().ok_or(NO_QUESTION)?;
        if let WantedInput::Form(fields) = &open.question.wanted
            && let Some(field) = fields.get(self.done)
        {
            if let Some(value) = field.parse(typed).map_err(|why| shown(&why))? {
                self.values.insert(field.name.clone(), value);
            }
            self.done += 1;
            if let Some(next) = fields.get(self.done) {
                return Ok(describe_field(next));
            }
        } else if !typed.trim().is_empty() {
            // A text such as `no` must not agree.
            return Err(NO_TEXT.to_owned());
        }
        Ok(self.finish(FormAnswer::Accept(self.values.clone()), session))
    }

    /// Handles `/refuse`, and returns the text to show.
    pub(super) fn refuse(&mut self, session: &Session) -> Result<String, String> {
        if self.open.is_empty() {
            return Err(NO_QUESTION.to_owned());
        }
        Ok(self.finish(FormAnswer::Decline, session))
    }

    fn finish(&self, answer: FormAnswer, session: &Session) -> String {
        let said = match answer {
            FormAnswer::Accept(_) => "answered",
            _ => "refused",
        };
        let Some(open) = self.open.front() else {
            return NO_QUESTION.to_owned();
        };
        // The event of the closed question removes it here.
        match session.answer_server(&open.id, answer) {
            allstop_session::AnswerResult::Taken => said.to_owned(),
            _ => "too late: a stop withdrew the question".to_owned(),
        }
    }

    /// Begins with the first question.
    fn begin(&mut self) -> Option<Said> {
        self.values.clear();
        self.done = 0;
        let question = &self.open.front()?.question;
        let how = match &question.wanted {
            WantedInput::Url(url) => format!(
                "open this page, and then type /answer, or /refuse:\n{}",
                shown(url)
            ),
            WantedInput::Form(fields) => fields.first().map_or_else(
                || "type /answer to agree, or /refuse".to_owned(),
                describe_field,
            ),
        };
        Some(Said {
            own: format!("[{} asks; {how}]", shown(&question.server)),
            outside: question.message.to_string(),
        })
    }
}

const NO_QUESTION: &str = "no server asks a question";
const NO_TEXT: &str = "this question takes no text: type /answer to agree, or /refuse";

fn describe_field(field: &FormField) -> String {
    let mut text = shown(&field.expected());
    if let Some(description) = &field.description {
        text.extend([" (", &shown(description), ")"]);
    }
    let otherwise = match (&field.default, field.required) {
        (Some(default), _) => format!("; /answer alone means {}", shown(&default.to_string())),
        (None, false) => "; /answer alone leaves it out".to_owned(),
        (None, true) => String::new(),
    };
    format!("{text}: type /answer TEXT, or /refuse{otherwise}")
}

/// Text of a server, without characters that could deceive a person.
fn shown(text: &str) -> String {
    escape_question(text).into_owned()
}
