//! The end of background work.

use std::sync::Arc;

use allstop_core::receipt::{EndMethod, Evidence, ItemState, NotStoppedReason};
use allstop_process::ExitInfo;
use allstop_scope::Process;

/// End of background work.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundEnd {
    /// State of the work, as in the receipt of a stop.
    pub state: ItemState,
    /// Exit code, if there is one.
    pub exit_code: Option<i32>,
    /// For a task: its answer, or the reason of its failure. For a command: a note if the proof of its end is weak, or
    /// if its keeper was killed.
    pub answer: Option<Arc<str>>,
    /// True if the work itself failed: a nonzero exit code, an error or a panic.
    pub failed: bool,
}

impl BackgroundEnd {
    /// Returns the end of a command's processes. `None` while the processes run, and also after they are detached, that
    /// is, left running on purpose.
    pub(super) fn of_process(process: &Process) -> Option<Self> {
        let handle = process.handle();
        let status = handle.status();
        let status = status.borrow();
        if status.empty.is_none() && status.failed.is_none() {
            return None;
        }
        let state = match (status.ended_by(handle.strongest_signal()), status.empty) {
            (Some(how), Some(verified)) => ItemState::Stopped {
                how,
                evidence: Evidence::verified(verified),
                after_ms: handle.stopped_after().unwrap_or_default().into(),
            },
            // The keeper is the process that watches the command's processes. After its loss, all processes that could
            // be found were killed, and their progress is unknown.
            _ if status.keeper_lost => ItemState::Unknown {
                how: EndMethod::Sigkill,
                after_ms: None,
            },
            _ => ItemState::Finished { after_ms: None },
        };
        let unstopped = !matches!(state, ItemState::Stopped { .. });
        let succeeded = status.exited.is_some_and(ExitInfo::is_success);
        Some(Self {
            failed: unstopped && !succeeded,
            state,
            exit_code: match status.exited {
                Some(ExitInfo::Code(code)) => Some(code),
                _ => None,
            },
            answer: status.evidence_note().map(Into::into),
        })
    }

    /// End of work that this process stops watching before the work ends.
    pub(super) fn unwatched() -> Self {
        Self {
            state: ItemState::StillRunning {
                why: NotStoppedReason::WatcherGone,
            },
            exit_code: None,
            answer: None,
            failed: false,
        }
    }
}
