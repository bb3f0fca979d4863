//! The message that asks the client of a task all open questions of its turn.

use allstop_session::{OpenQuestion, OpenServerQuestion};
use allstop_task::TaskMessage;
use allstop_task::model::{JsonMap, MessagePart};

use super::message_text::agent_message;
use super::permission_questions::permissions_message;
use super::server_forms::{TaskForms, fields_of};

/// Questions of a turn and its sub-agents.
#[derive(Debug, Default)]
pub(super) struct TurnQuestions {
    pub(super) permissions: Vec<OpenQuestion>,
    pub(super) of_servers: Vec<OpenServerQuestion>,
}

impl TurnQuestions {
    pub(super) fn is_empty(&self) -> bool {
        self.permissions.is_empty() && self.of_servers.is_empty()
    }

    /// Creates the message of the agent that asks these questions.
    pub(super) fn message(self, forms: &mut TaskForms) -> TaskMessage {
        if self.of_servers.is_empty() {
            return permissions_message(&self.permissions);
        }
        let metadata = match (self.permissions.as_slice(), self.of_servers.as_slice()) {
            ([], [only]) => fields_of(only),
            _ => JsonMap::new(),
        };
        let is_single = !metadata.is_empty();
        let mut parts = Vec::new();
        if !self.permissions.is_empty() {
            parts = permissions_message(&self.permissions).parts;
        }
        parts.extend(forms.ask(self.of_servers));
        if !is_single {
            let remedy = "Answer with one part for each question_id.";
            parts.push(MessagePart::text(remedy));
        }
        TaskMessage {
            parts,
            metadata,
            ..agent_message("")
        }
    }
}
