//! States of a task.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CauseKind, Timestamp};
use serde::{Deserialize, Serialize};

use super::message::TaskMessage;

/// State of a task, as in the protocol A2A 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Accepted; the execution has not started.
    Submitted,
    /// The executor is working.
    Working,
    /// The execution has ended, and the task waits for a message.
    InputRequired,
    /// The executor waits for credentials that another system provides.
    AuthRequired,
    /// Ended with success.
    Completed,
    /// Ended with an error or a timeout.
    Failed,
    /// Ended by a stop.
    Canceled,
    /// Refused by the executor.
    Rejected,
}

impl TaskState {
    /// True if nothing follows this state.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }

    /// True if this state ends the execution. This applies to every terminal state and to `input_required`.
    pub fn ends_execution(self) -> bool {
        self.is_terminal() || self == Self::InputRequired
    }

    /// True if a waiting client gets its answer in this state: the task makes no progress until the client acts.
    pub fn answers_client(self) -> bool {
        self.ends_execution() || self == Self::AuthRequired
    }

    /// Terminal state of a task after a stop with this kind of cause.
    pub fn after_stop(cause: CauseKind) -> Self {
        match cause {
            CauseKind::User
            | CauseKind::Superseded
            | CauseKind::Parent
            | CauseKind::Disconnect
            | CauseKind::Shutdown => Self::Canceled,
            CauseKind::Deadline
            | CauseKind::Inactivity
            | CauseKind::Budget
            | CauseKind::Guardrail
            | CauseKind::Failure
            | CauseKind::LeaseLost => Self::Failed,
        }
    }

    /// Name of the state in the log and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::AuthRequired => "auth_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of a task, with the time of the last change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The state.
    pub state: TaskState,
    /// Message of the executor about the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<TaskMessage>>,
    /// Time of the change.
    pub at: Timestamp,
}
