//! Messages of a process to those who watch one of its sessions.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::Receipt;
use allstop_core::ids::QuestionId;
use allstop_tools::PermissionAnswer;
use serde::{Deserialize, Serialize};

use crate::questions::ShownQuestion;

/// One event for a watcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum WatchEvent {
    /// A message of the user, which the running turn answers.
    Message { text: Arc<str> },
    /// A live event of a turn. `age_ms`: time since it happened, for one that is older than the watch.
    Live {
        event: AgentEvent,
        #[serde(default, skip_serializing_if = "is_zero")]
        age_ms: u64,
    },
    /// A permission question is open.
    Asked(ShownQuestion),
    /// A question was answered or withdrawn.
    QuestionClosed {
        id: QuestionId,
        /// The answer; none if it was withdrawn.
        answer: Option<WatcherAnswer>,
        /// Name of the answerer, if it was not the terminal of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A line for people.
    Note { text: String },
    /// A stop has begun, which uses force after this time.
    Stopping { force_in_ms: u64 },
    /// A stop has its receipt.
    Receipt { receipt: Arc<Receipt> },
    /// The watcher was too slow, and has missed events before this one.
    Missed { count: u64 },
    /// The session is closed: nothing follows.
    Ended,
}

/// Answer to a question, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WatcherAnswer {
    AllowOnce,
    AllowForSession,
    Deny { reason: Option<Arc<str>> },
}

impl WatcherAnswer {
    /// True if the call may run.
    pub(crate) fn allows(&self) -> bool {
        !matches!(self, Self::Deny { .. })
    }
}

impl From<PermissionAnswer> for WatcherAnswer {
    fn from(answer: PermissionAnswer) -> Self {
        match answer {
            PermissionAnswer::AllowOnce => Self::AllowOnce,
            PermissionAnswer::AllowForSession => Self::AllowForSession,
            PermissionAnswer::Deny { reason } => Self::Deny { reason },
            PermissionAnswer::Unanswered => Self::Deny { reason: None },
        }
    }
}

impl From<WatcherAnswer> for PermissionAnswer {
    fn from(answer: WatcherAnswer) -> Self {
        match answer {
            WatcherAnswer::AllowOnce => Self::AllowOnce,
            WatcherAnswer::AllowForSession => Self::AllowForSession,
            WatcherAnswer::Deny { reason } => Self::Deny { reason },
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
