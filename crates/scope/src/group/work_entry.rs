//! Entries of a group's registry, for running work and for work that ended under a stop. Each entry can create its
//! state for a receipt, the result of a stop.

use std::borrow::Cow;

use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemState, NotStoppedReason};
use tokio::time::Instant;

use super::{ReceiptScope, ScopeIndex};
use crate::work::{Details, Ending, Force, WorkSpec};

/// Entry of running work.
pub(crate) struct WorkEntry {
    pub(crate) index: ScopeIndex,
    pub(crate) seq: u64,
    pub(crate) spec: WorkSpec,
    pub(crate) force: Force,
    /// Checkpoint at which the work observed the stop. The work itself sets this field.
    pub(crate) acknowledged: Option<Cow<'static, str>>,
    /// True if the work was forced while its task was being created.
    pub(crate) forced: bool,
}

impl WorkEntry {
    /// State of the work while it runs.
    pub(crate) fn running_state(&self) -> ItemState {
        match &self.force {
            Force::Abort(_) | Force::AbortSoon | Force::Inline => ItemState::StillRunning {
                why: NotStoppedReason::BlocksItsThread,
            },
            Force::Process(_) => ItemState::StillRunning {
                why: NotStoppedReason::ProcessesLeft,
            },
            Force::Thread => ItemState::StillRunning {
                why: NotStoppedReason::BlockingThread,
            },
            Force::Remote(_) => ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            },
        }
    }
}

/// Record of work that ended under a stop.
pub(crate) struct EndedWork {
    pub(crate) index: ScopeIndex,
    pub(crate) seq: u64,
    pub(crate) spec: WorkSpec,
    pub(crate) ending: Ending,
    pub(crate) at: Instant,
    pub(crate) details: Option<Box<Details>>,
    pub(crate) was_thread: bool,
}

/// Checkpoint for a call that never began because the barrier of its scope was closed.
const BEFORE_ITS_START: &str = "before_its_start";

impl EndedWork {
    /// Record of a call that was requested but had not begun when it was stopped. Before the work of a call begins,
    /// only the [`ReceiptScope`] of the call exists.
    pub(super) fn not_begun(call: &ReceiptScope, index: ScopeIndex) -> Self {
        Self {
            index,
            seq: call.seq,
            spec: call.spec.clone(),
            ending: Ending::Stopped {
                how: EndMethod::NotBegun,
                evidence: Evidence::observed_at(BEFORE_ITS_START),
            },
            at: Instant::now(),
            details: None,
            was_thread: false,
        }
    }

    /// The state for a receipt. `after` is the time from the request of the stop to the end of the work.
    pub(crate) fn state(&self, after: std::time::Duration) -> ItemState {
        let after_ms = after.into();
        let stopped = |how, evidence| ItemState::Stopped {
            how,
            evidence,
            after_ms,
        };
        let returned = if self.was_thread {
            EndProof::ThreadEnded
        } else {
            EndProof::TaskEnded
        };
        match &self.ending {
            Ending::Returned => ItemState::Finished {
                after_ms: Some(after_ms),
            },
            Ending::Acknowledged(checkpoint) => stopped(
                EndMethod::Acknowledged,
                Evidence::verified(returned).and_observed_at(checkpoint.clone()),
            ),
            Ending::Dropped => stopped(
                EndMethod::Dropped,
                Evidence::verified(EndProof::FutureDropped),
            ),
            Ending::NotBegun => {
                let verified = if self.was_thread {
                    EndProof::ThreadEnded
                } else {
                    EndProof::FutureDropped
                };
                stopped(EndMethod::NotBegun, Evidence::verified(verified))
            }
            Ending::Panicked => stopped(EndMethod::Failed, Evidence::verified(returned)),
            Ending::Stopped { how, evidence } => stopped(*how, evidence.clone()),
            Ending::NotConfirmed => ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            },
            Ending::WatcherGone => ItemState::StillRunning {
                why: NotStoppedReason::WatcherGone,
            },
        }
    }
}
