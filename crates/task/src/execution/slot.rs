//! Slots as values: whoever drops one gives it back.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::host::ExecutionHost;

/// A slot, or a place in the queue for one.
pub(crate) enum SlotRequest {
    /// The execution may start.
    Granted(SlotGuard),
    /// It may start later.
    Waiting(WaitingSlot),
    /// A stop of a task at rest takes no slot.
    NotNeeded,
}

/// Slot of a running execution. Its drop gives it to the next one.
pub(crate) struct SlotGuard {
    host: Weak<dyn ExecutionHost>,
    owner: Arc<str>,
}

impl SlotGuard {
    pub(crate) fn new(host: Weak<dyn ExecutionHost>, owner: Arc<str>) -> Self {
        Self { host, owner }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            host.release_slot(&self.owner);
        }
    }
}

/// Place in the queue for a slot.
pub(crate) struct WaitingSlot {
    grant: oneshot::Receiver<()>,
    host: Weak<dyn ExecutionHost>,
    owner: Arc<str>,
}

impl WaitingSlot {
    pub(crate) fn new(
        grant: oneshot::Receiver<()>,
        host: Weak<dyn ExecutionHost>,
        owner: Arc<str>,
    ) -> Self {
        Self { grant, host, owner }
    }

    /// The slot, when it is granted.
    pub(crate) async fn granted(mut self) -> Option<SlotGuard> {
        let granted = (&mut self.grant).await;
        granted.ok().map(|()| self.guard())
    }

    fn guard(&self) -> SlotGuard {
        SlotGuard {
            host: Weak::clone(&self.host),
            owner: Arc::clone(&self.owner),
        }
    }
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        self.grant.close();
        // Granted, and nobody took it: back it goes.
        if self.grant.try_recv().is_ok() {
            drop(self.guard());
        }
    }
}
