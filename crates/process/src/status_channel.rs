//! The status of a tree. The driver writes the status, and all other code reads it.
//!
//! This is like a watch channel of tokio, except that waiters are woken in the order in which they began to wait. Tokio
//! wakes its receivers in random order. A test with a paused clock would then not be repeatable.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::EndProof;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::status::{ExitInfo, ProcessStatus, SearchReason};

#[derive(Debug, Default)]
struct StatusCell {
    now: RwLock<ProcessStatus>,
    closed: AtomicBool,
    changed: Notify,
}

/// The end of the channel that the driver uses. Publishes each fact once, and the emptiness of the tree last.
#[derive(Debug)]
pub struct StatusSender(Arc<StatusCell>);

/// The end of the channel that readers use. Always has the newest status.
#[derive(Debug, Clone)]
pub struct StatusReceiver(Arc<StatusCell>);

pub(crate) fn status_channel() -> (StatusSender, StatusReceiver) {
    let cell = Arc::<StatusCell>::default();
    (StatusSender(Arc::clone(&cell)), StatusReceiver(cell))
}

impl StatusSender {
    /// Publishes the main process.
    pub fn started(&self, main: ProcessIdentity) {
        self.publish(|now| now.main = Some(main));
    }

    /// Publishes the end of the main process.
    pub fn exited(&self, exit: ExitInfo) {
        self.publish(|now| now.exited = Some(exit));
    }

    /// Publishes that no process of the tree is left, with the proof that was found.
    pub fn emptied(&self, verified: EndProof) {
        self.publish(|now| now.set_empty(verified));
    }

    /// Publishes that the tree continues to run, and that its driver no longer watches it.
    pub fn detached(&self) {
        self.publish(|now| now.detached = true);
    }

    pub(crate) fn searched_for(&self, reason: SearchReason) {
        self.publish(|now| now.searched = Some(reason));
    }

    pub(crate) fn is_searched(&self) -> bool {
        self.0.now.read().searched.is_some()
    }

    pub(crate) fn publish(&self, modify: impl FnOnce(&mut ProcessStatus)) {
        modify(&mut self.0.now.write());
        self.0.changed.notify_waiters();
    }
}

impl Drop for StatusSender {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

/// Error of a wait: the driver was dropped, and never published the expected fact.
#[derive(Debug)]
pub(crate) struct StatusClosed;

impl StatusReceiver {
    /// Borrows the current status. Drop the borrowed value soon, because the driver cannot write while the borrowed
    /// value exists.
    pub fn borrow(&self) -> impl Deref<Target = ProcessStatus> {
        // Recursive, because a reader that holds the status may call methods of the handle that borrow the status
        // again.
        self.0.now.read_recursive()
    }

    /// Waits until `read` returns a value.
    ///
    /// Cancel safe: the function only reads.
    pub(crate) async fn wait_for<T>(
        &self,
        read: impl Fn(&ProcessStatus) -> Option<T>,
    ) -> Result<T, StatusClosed> {
        loop {
            // The order matters. A change after `read` wakes this waiter, because the waiter is created before `read`.
            // If `closed` is true, no change can follow `read`.
            let changed = self.0.changed.notified();
            let closed = self.0.closed.load(Ordering::Acquire);
            if let Some(value) = read(&self.0.now.read()) {
                return Ok(value);
            }
            if closed {
                return Err(StatusClosed);
            }
            changed.await;
        }
    }
}
