//! The question of a tool's server to a person, during a call: a form, or a page to visit.
//!
//! The [`Prompter`](crate::Prompter) of the session asks the question. A stop of the call also ends its question. If no
//! person can answer, the server gets a refusal, and the outcome of the turn lists the question.

mod field;
mod schema;

use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use serde_json::{Map, Value};

pub use field::{FieldKind, FieldOption, FormField};

/// Maximum number of fields of a form. A person answers them one after the other.
pub const FORM_FIELDS_MAX: usize = 32;

/// Maximum length of the text of a question, in bytes: a page.
pub const QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Question of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerQuestion {
    /// Session of the calling agent. The session of a sub-agent is `PARENT/CALL`.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the server.
    pub server: Arc<str>,
    /// Text of the server. It may contain any characters, so displays must escape it.
    pub message: Arc<str>,
    /// The wanted information.
    pub wanted: WantedInput,
}

/// Information that a server wants.
#[derive(Debug, Clone, PartialEq)]
pub enum WantedInput {
    /// Values for the fields of a form. An empty form only wants a consent.
    Form(Vec<FormField>),
    /// A visit of this page in a browser. The person gives the information to the page, not to Allstop.
    Url(Arc<str>),
}

/// Answer to the question of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum FormAnswer {
    /// Consent, with the values of the form.
    Accept(Map<String, Value>),
    /// The person refuses.
    Decline,
    /// The person has dismissed the question without a decision.
    Cancel,
    /// No person can answer. The server gets a refusal.
    Unanswered,
}

impl WantedInput {
    /// Adds the default values of omitted fields, and checks all values.
    ///
    /// # Errors
    /// Names the first field without a valid value, for people.
    pub fn completed(&self, mut values: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let Self::Form(fields) = self else {
            return Ok(Map::new());
        };
        values.retain(|name, _| fields.iter().any(|field| field.name == *name));
        for field in fields {
            match (values.get(&field.name), &field.default) {
                (Some(value), _) => field.check(value)?,
                (None, Some(default)) => {
                    values.insert(field.name.clone(), default.clone());
                }
                (None, None) if field.required => {
                    return Err(format!("`{}` needs a value", field.label()));
                }
                (None, None) => {}
            }
        }
        Ok(values)
    }
}

/// Shortens a text to [`QUESTION_BYTES_MAX`].
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUESTION_BYTES_MAX)]
}
