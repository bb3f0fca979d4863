//! How background work ended.

use std::sync::Arc;

use allstop_core::receipt::{Evidence, How, ItemState, Why};
use allstop_scope::Process;
use allstop_scope::process::ExitInfo;

/// How background work ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundEnd {
    /// What became of it.
    pub state: ItemState,
    /// Its exit code, where it has one.
    pub exit_code: Option<i32>,
    /// The answer of a task, or why it failed.
    pub said: Option<Arc<str>>,
    /// Whether it ended with a failure of its own: another exit code than 0, an error, a panic.
    pub failed: bool,
}

impl BackgroundEnd {
    /// Of processes; `None` while they run, and for ever once they are not watched any more.
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
            // It did not end by itself, and nobody saw how far it came.
            _ if status.keeper_lost => ItemState::Unknown {
                how: How::Sigkill,
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
            said: status.keeper_lost_note().map(Into::into),
        })
    }

    /// Nobody here will see how it ends.
    pub(super) fn unseen() -> Self {
        Self {
            state: ItemState::StillRunning {
                why: Why::WatcherGone,
            },
            exit_code: None,
            said: None,
            failed: false,
        }
    }
}
