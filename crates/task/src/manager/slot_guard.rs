//! Slots as values: whoever drops one gives it back.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::ManagerInner;

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
    manager: Weak<ManagerInner>,
    owner: Arc<str>,
}

impl SlotGuard {
    pub(super) fn new(manager: Weak<ManagerInner>, owner: Arc<str>) -> Self {
        Self { manager, owner }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.table.lock().slots.release(&self.owner);
        }
    }
}

/// Place in the queue for a slot.
pub(crate) struct WaitingSlot {
    grant: oneshot::Receiver<()>,
    manager: Weak<ManagerInner>,
    owner: Arc<str>,
}

impl WaitingSlot {
    pub(super) fn new(
        grant: oneshot::Receiver<()>,
        manager: Weak<ManagerInner>,
        owner: Arc<str>,
    ) -> Self {
        Self {
            grant,
            manager,
            owner,
        }
    }

    /// The slot, when it is granted.
    pub(crate) async fn granted(mut self) -> Option<SlotGuard> {
        let granted = (&mut self.grant).await;
        granted.ok().map(|()| self.guard())
    }

    fn guard(&self) -> SlotGuard {
        SlotGuard {
            manager: Weak::clone(&self.manager),
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
