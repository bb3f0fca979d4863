//! The lock of a stream: who owns a session while it is in use.

use std::fmt;

use allstop_core::process::ProcessIdentity;

use crate::StreamName;

/// What came of asking for a lock.
#[derive(Debug)]
#[must_use = "dropping a lock gives it back"]
pub enum LockAttempt {
    /// The lock is ours until it is dropped.
    Locked(StreamLock),
    /// Somebody else has it.
    HeldBy(
        /// Who; `None` in the moment between taking the lock and writing the owner down.
        Option<ProcessIdentity>,
    ),
}

/// A held lock. Dropping it gives it back; so does the end of the process, in whatever way it ends.
///
/// The drop does no I/O of its own: the store's thread gives the lock back, in order with what is asked of the same
/// store afterwards.
#[must_use = "dropping a lock gives it back"]
pub struct StreamLock {
    stream: StreamName,
    is_first: bool,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl StreamLock {
    /// A lock that is given back by calling `release` once; for those who write a store.
    pub fn new(stream: StreamName, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            stream,
            is_first: false,
            release: Some(Box::new(release)),
        }
    }

    /// Marks it as taken where the store had no trace of any lock: it is new, or all of them were deleted.
    pub fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// True if earlier locks may have been deleted while they were held.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// What is locked.
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
