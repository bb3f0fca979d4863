//! The status of a tree, from its driver to all other code.
//!
//! Like a watch channel of tokio, except that waiters are woken in the order in which they began to wait. Tokio wakes
//! its receivers in random order, and a test on paused time is then not repeatable.

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

/// The driver's end. Publishes each fact once, and the emptiness of the tree last.
#[derive(Debug)]
pub struct StatusSender(Arc<StatusCell>);

/// The readers' end. Always has the newest status.
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

    /// Publishes that the tree continues to run without its driver.
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

/// The driver is gone, and the awaited fact was never published.
#[derive(Debug)]
pub(crate) struct StatusClosed;

impl StatusReceiver {
    /// Borrows the current status. Drop it soon, because the driver waits for its readers.
    pub fn borrow(&self) -> impl Deref<Target = ProcessStatus> {
        // A reader may call other methods of the handle, which borrow again.
        self.0.now.read_recursive()
    }

    /// Waits until `read` returns a value.
    ///
    /// Cancel safe: it takes nothing.
    pub(crate) async fn wait_for<T>(
        &self,
        read: impl Fn(&ProcessStatus) -> Option<T>,
    ) -> Result<T, StatusClosed> {
        loop {
            // The order matters: a change that the read misses wakes this waiter, and nothing is sent after the end.
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
