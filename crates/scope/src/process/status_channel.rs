//! The status of a tree, from its driver to everyone else.
//!
//! Like a watch channel of tokio, except that waiters are woken in the order in which they began to wait. Tokio's wakes
//! its receivers in random order, and then a test on paused time cannot be repeated.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::status::ProcessStatus;

#[derive(Debug, Default)]
struct Cell {
    now: RwLock<ProcessStatus>,
    closed: AtomicBool,
    changed: Notify,
}

/// The driver's end.
#[derive(Debug)]
pub(super) struct StatusSender(Arc<Cell>);

/// What is known of a tree, always the newest.
#[derive(Debug, Clone)]
pub struct StatusReceiver(Arc<Cell>);

pub(super) fn status_channel() -> (StatusSender, StatusReceiver) {
    let cell = Arc::<Cell>::default();
    (StatusSender(Arc::clone(&cell)), StatusReceiver(cell))
}

impl StatusSender {
    pub(super) fn send_modify(&self, modify: impl FnOnce(&mut ProcessStatus)) {
        modify(&mut self.0.now.write());
        self.0.changed.notify_waiters();
    }

    #[cfg(target_os = "linux")]
    pub(super) fn borrow(&self) -> impl Deref<Target = ProcessStatus> {
        self.0.now.read()
    }
}

impl Drop for StatusSender {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

/// Nobody watches the tree any more, and what was waited for has not been seen.
#[derive(Debug)]
pub(super) struct Closed;

impl StatusReceiver {
    /// The status now. Do not keep it: the driver waits for whoever looks.
    pub fn borrow(&self) -> impl Deref<Target = ProcessStatus> {
        // Whoever looks may ask the handle more, which looks again.
        self.0.now.read_recursive()
    }

    /// Waits until there is something to read.
    ///
    /// Cancel safe: it takes nothing.
    pub(super) async fn wait_for<T>(
        &self,
        read: impl Fn(&ProcessStatus) -> Option<T>,
    ) -> Result<T, Closed> {
        loop {
            // Each before the next: a change that the look misses wakes, and nothing is sent after the end.
            let changed = self.0.changed.notified();
            let closed = self.0.closed.load(Ordering::Acquire);
            if let Some(value) = read(&self.0.now.read()) {
                return Ok(value);
            }
            if closed {
                return Err(Closed);
            }
            changed.await;
        }
    }
}
