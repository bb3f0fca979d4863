//! Messages of a process to the watchers of its sessions. A watcher is a program in another terminal that shows a
//! session.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::record::SessionRecord;
use allstop_core::{CallId, Cause, Receipt};
use allstop_session::BackgroundItem;
use allstop_tools::PermissionAnswer;
use serde::{Deserialize, Serialize};

use crate::question::ShownQuestion;

/// One event for a watcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WatchEvent {
    /// A message of the user, which the running turn answers.
    Message {
        /// The message.
        text: Arc<str>,
    },
    /// A live event of a turn.
    Live {
        /// The event.
        event: AgentEvent,
        /// Age of the event in milliseconds if the event is older than the watch, otherwise 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        age_ms: u64,
    },
    /// A permission question is open.
    Asked(ShownQuestion),
    /// A question was answered or withdrawn.
    QuestionClosed {
        /// Id of the question.
        id: QuestionId,
        /// The answer; `None` if the question was withdrawn.
        answer: Option<WatcherAnswer>,
        /// Name of the program that answered, if the answer did not come from the terminal of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A line that the terminal of the session shows.
    Note {
        /// The line.
        text: String,
    },
    /// A record that no other event reports: the end of background work, a summary of older turns, or the stop of a
    /// turn that began by itself.
    Recorded {
        /// The record.
        record: Arc<SessionRecord>,
    },
    /// A call answered after the call had ended. The answer is discarded.
    LateAnswer {
        /// The call.
        call_id: CallId,
        /// Name of the call's tool.
        name: Arc<str>,
    },
    /// A turn has ended, and this background work continues.
    InBackground {
        /// The work.
        running: Vec<BackgroundItem>,
    },
    /// The engine of the turn, the task that drives the turn, has received a stop.
    StopHeard {
        /// Cause of the stop.
        cause: Cause,
    },
    /// A stop has begun. The work has some time to end by itself.
    Stopping {
        /// Milliseconds until the stop uses force, which kills processes and drops futures.
        force_in_ms: u64,
    },
    /// The receipt of a stop, with the result for each piece of work, is ready.
    Receipt {
        /// The receipt.
        receipt: Arc<Receipt>,
    },
    /// The watcher was too slow, and missed events before this one.
    Missed {
        /// Number of missed events.
        count: u64,
    },
    /// The session is closed, and no events follow.
    Ended,
}

/// Answer to a question, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatcherAnswer {
    /// The call may run.
    AllowOnce,
    /// The call may run, and similar calls may also run in this session.
    AllowForSession,
    /// The call must not run.
    Deny {
        /// Reason, for the model.
        reason: Option<Arc<str>>,
    },
}

impl WatcherAnswer {
    /// True if the call may run.
    pub fn allows(&self) -> bool {
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
