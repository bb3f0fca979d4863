//! Lock of a stream: it identifies the owner of a session in use.

use std::fmt;

use allstop_core::process::ProcessIdentity;

use crate::StreamName;

/// Result of a request for a lock.
#[derive(Debug)]
#[must_use = "dropping a lock gives it back"]
pub enum LockAttempt {
    /// The caller has the lock until it drops it.
    Locked(StreamLock),
    /// Another owner has the lock.
    HeldBy(
        /// The owner; `None` in the moment between taking the lock and writing its owner.
        Option<ProcessIdentity>,
    ),
}

/// A held lock. Dropping it releases it. The end of the process, in any way, releases it, too.
///
/// The drop does no I/O itself: the store's thread releases the lock, in order with later requests to the same store.
#[must_use = "dropping a lock gives it back"]
pub struct StreamLock {
    stream: StreamName,
    is_first: bool,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl StreamLock {
    /// A lock that calls `release` once when it is dropped. For implementations of a store.
    pub fn new(stream: StreamName, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            stream,
            is_first: false,
            release: Some(Box::new(release)),
        }
    }

    /// Marks the lock as taken when the store had no trace of any lock: the store is new, or all locks were deleted.
    pub fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// True if earlier locks may have been deleted while they were held.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// The locked stream.
    pub fn stream(&self) -> &StreamName {
        &self.stream
    }
}

impl Drop for StreamLock {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for StreamLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamLock").field(&self.stream).finish()
    }
}
