//! State of a task's future.

use std::fmt;
use std::sync::{Arc, OnceLock};

use allstop_core::Usage;
use allstop_core::receipt::{EndMethod, Evidence, ItemState};
use tokio::time::Instant;

use super::end::BackgroundEnd;
use crate::permission::Denial;

/// Counts of a running call.
pub(crate) trait CallMeter: Send + Sync + fmt::Debug {
    /// Usage so far.
    fn metered(&self) -> Usage;

    /// Denied calls of sub-agents so far.
    fn denials(&self) -> Vec<Denial>;
}

/// State of a task's future: its end, its usage and its denied calls.
#[derive(Debug)]
pub(super) struct FutureWorkState {
    pub(super) meter: Arc<dyn CallMeter>,
    pub(super) end: OnceLock<BackgroundEnd>,
    pub(super) stopped_at: OnceLock<Instant>,
}

impl FutureWorkState {
    pub(super) fn end(&self) -> Option<BackgroundEnd> {
        self.end.get().cloned()
    }

    pub(super) fn stopped(&self, how: EndMethod, evidence: Evidence) -> ItemState {
        let after = self.stopped_at.get().map(Instant::elapsed);
        ItemState::Stopped {
            how,
            evidence,
            after_ms: after.unwrap_or_default().into(),
        }
    }
}
