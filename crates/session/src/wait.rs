//! Wait until a message has its outcome and its session is idle.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::record::Attachment;
use allstop_tools::{BackgroundHost as _, BackgroundWork};

use crate::events::{BackgroundItem, OpenQuestion};
use crate::inner::SessionInner;
use crate::message::{MessageHandle, MessageOutcome};

/// Result of a wait for a message.
#[derive(Debug, Clone)]
#[must_use = "the wait may have ended before the work"]
pub struct WaitResult {
    /// The message.
    pub sent: MessageHandle,
    /// The outcome; `None` if the turn still runs or waits.
    pub outcome: Option<Arc<MessageOutcome>>,
    /// True if the time limit of the wait passed. Nothing was stopped.
    pub timed_out: bool,
    /// Background work that still runs. Includes attached work only if the time limit passed; otherwise all listed work
    /// is detached.
    pub running: Vec<BackgroundItem>,
    /// Permission questions that block the turn.
    pub questions: Vec<OpenQuestion>,
}

impl SessionInner {
    /// Running background work that this process watches.
    pub(crate) fn running_background(&self) -> Vec<Arc<BackgroundWork>> {
        let background = self.background();
        background.map_or_else(Vec::new, |background| background.running())
    }

    /// Running background work: the work that this process watches, and detached work.
    pub(crate) fn background_items(&self) -> Vec<BackgroundItem> {
        let (watched, orphans) = (self.running_background(), self.orphaned_work());
        let watched = watched.iter().map(|work| BackgroundItem::of(work));
        let orphans = orphans.iter().filter(|orphan| orphan.alive);
        watched.chain(orphans.map(BackgroundItem::orphan)).collect()
    }

    pub(crate) fn background(&self) -> Option<Arc<allstop_agent::SessionBackground>> {
        let state = self.state.lock();
        state.awake.as_ref()?.background.clone()
    }

    pub(crate) async fn wait(&self, sent: MessageHandle, limit: Duration) -> WaitResult {
        let both = async {
            sent.outcome().await;
            self.background_idle().await;
        };
        let timed_out = self.host.scope.timeout(limit, both).await.is_none();
        WaitResult {
            outcome: sent.try_outcome(),
            timed_out,
            running: self.background_items(),
            questions: self.questions.open(),
            sent,
        }
    }

    /// Waits until no attached background work runs, including work of earlier turns.
    pub(crate) async fn background_idle(&self) {
        // A sleeping or closed session has no background work.
        let Some(background) = self.background() else {
            return;
        };
        let mut changes = background.changes().subscribe();
        loop {
            changes.mark_unchanged();
            let running = background.running();
            if !running.iter().any(is_attached) || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// True if the work delays the event `session_idle`.
pub(crate) fn is_attached(work: &Arc<BackgroundWork>) -> bool {
    work.attachment() == Attachment::Attached
}
