//! Lock of a stream. The lock identifies the owner of a session: the process that has the session open.

use std::fmt;

use allstop_core::process::ProcessIdentity;

use crate::StreamName;

/// Result of a request for a lock.
#[derive(Debug)]
#[must_use = "dropping a lock gives it back"]
pub enum LockAttempt {
    /// The caller holds the lock until the caller drops it.
    Locked(StreamLock),
    /// Another owner holds the lock.
    HeldBy(
        /// The owner. `None` if the lock was just taken and the identity of the owner is not yet written.
        Option<ProcessIdentity>,
    ),
}

/// A held lock. Dropping the value releases the lock. The end of the process, in any way, also releases the lock.
///
/// The drop itself does no I/O. The thread of the store releases the lock, before it serves later requests to the same
/// store.
#[must_use = "dropping a lock gives it back"]
pub struct StreamLock {
    stream: StreamName,
    is_first: bool,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl StreamLock {
    /// Creates a lock that calls `release` once when the lock is dropped. Only implementations of a store need this
    /// function.
    pub fn new(stream: StreamName, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            stream,
            is_first: false,
            release: Some(Box::new(release)),
        }
    }

    /// Marks the lock as the first lock of the store: when the lock was taken, the store had no trace of any other
    /// lock. Either the store is new, or all locks were deleted.
    pub fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// True if earlier locks may have been deleted while their owners held them.
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
