//! The form of the JSON that commands print under `--json`. All commands use this module, so the rule is the same
//! everywhere:
//!
//! 1. One object on one line. A stream, such as `tasks watch --json`, prints one object per line.
//! 2. The first key is `schema`. `allstop schema NAME` prints the JSON Schema of each of these objects.
//! 3. A failure prints the object of [`DocumentSchema::Error`], and the exit code follows from the kind of the error.
//!
//! The receipt, the envelope of a run and its events have the same form, but their crates define them.

use allstop_terminal::{OutputPriority, OutputQueue};
use serde::Serialize;

/// Schema of an object that a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentSchema {
    /// A failure of any command.
    Error,
    /// `ps`.
    Ps,
    /// `stop ID`.
    Stop,
    /// `stop --all`.
    StopAll,
    /// `sessions list`.
    Sessions,
    /// `sessions show`.
    Session,
    /// `sessions export`.
    Transcript,
    /// `doctor`.
    Doctor,
    /// `demo`.
    Demo,
    /// `store check`.
    StoreCheck,
    /// `tasks list`.
    Tasks,
    /// `tasks show`.
    Task,
    /// `tasks stop`.
    TaskStop,
    /// A line of `tasks watch`.
    TaskEvent,
    /// `workers list`.
    Workers,
    /// `workers dead`.
    DeadLetters,
    /// `workers drain`.
    WorkerDrain,
    /// `workers redrive`.
    Redrive,
}

impl DocumentSchema {
    /// All schemas.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 18] = [
        Self::Error,
        Self::Ps,
        Self::Stop,
        Self::StopAll,
        Self::Sessions,
        Self::Session,
        Self::Transcript,
        Self::Doctor,
        Self::Demo,
        Self::StoreCheck,
        Self::Tasks,
        Self::Task,
        Self::TaskStop,
        Self::TaskEvent,
        Self::Workers,
        Self::DeadLetters,
        Self::WorkerDrain,
        Self::Redrive,
    ];

    /// Value of the key `schema`: `allstop.NAME/VERSION`.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Error => "allstop.error/1",
            Self::Ps => "allstop.ps/1",
            Self::Stop => "allstop.stop/1",
            Self::StopAll => "allstop.stop-all/1",
            Self::Sessions => "allstop.sessions/1",
            Self::Session => "allstop.session/1",
            Self::Transcript => "allstop.transcript/1",
            Self::Doctor => "allstop.doctor/1",
            Self::Demo => "allstop.demo/1",
            Self::StoreCheck => "allstop.store-check/1",
            Self::Tasks => "allstop.tasks/1",
            Self::Task => "allstop.task/1",
            Self::TaskStop => "allstop.task-stop/1",
            Self::TaskEvent => "allstop.task-event/1",
            Self::Workers => "allstop.workers/1",
            Self::DeadLetters => "allstop.dead-letters/1",
            Self::WorkerDrain => "allstop.worker-drain/1",
            Self::Redrive => "allstop.redrive/1",
        }
    }

    /// The object with these keys, as one line.
    pub(crate) fn line(self, keys: &impl Serialize) -> String {
        let document = Document {
            schema: self.id(),
            keys,
        };
        // The documents have string keys and finite numbers, so this cannot fail.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// Prints the object with these keys.
    pub(crate) fn print(self, keys: &impl Serialize, stdout: &OutputQueue) {
        stdout.json(&self.line(keys), OutputPriority::Last);
    }
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    keys: &'a T,
}

/// Prints a receipt, which already has its `schema`.
pub(crate) fn print_receipt(receipt: &allstop_core::Receipt, stdout: &OutputQueue) {
    // A receipt has string keys and finite numbers, so this cannot fail.
    let line = serde_json::to_string(receipt).unwrap_or_default();
    stdout.json(&line, OutputPriority::Last);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_one_line_that_begins_with_its_schema() {
        let line = DocumentSchema::Ps.line(&json!({"sessions": ["a\nb"]}));
        assert_eq!(line, r#"{"schema":"allstop.ps/1","sessions":["a\nb"]}"#);
    }
}
