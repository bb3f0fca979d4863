//! Guards for slots. A slot is the permission to run one execution within the limits of the manager. A dropped guard
//! releases its slot.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::host::ExecutionHost;

/// A slot, or a position in the queue for a slot.
pub(crate) enum SlotRequest {
    /// The execution may start.
    Granted(SlotGuard),
    /// The execution may start later.
    Waiting(WaitingSlot),
    /// No slot is needed, for example for a stop of a task at rest.
    NotNeeded,
}

/// Slot of a running execution. When the guard is dropped, the next execution can get the slot.
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

/// Position in the queue for a slot.
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

    /// Waits until the slot is granted. `None` if the queue is closed.
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
        // The slot was granted but not used, so it is released.
        if self.grant.try_recv().is_ok() {
            drop(self.guard());
        }
    }
}
