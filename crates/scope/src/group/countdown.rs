//! The countdown of one stop: the number of groups with running work, and a signal that is sent when the number is
//! zero. A group is a set of scopes that share one registry of work.

use crate::sync::{AtomicUsize, Notify, Ordering};

/// Counts the groups with running work that the stop has reached on its walk through the tree. During the walk, the
/// count is larger by one. The count is zero only when all work that the stop covers has ended. A count of zero stays
/// zero, because no work starts after a barrier is closed. Each group counts its own work under its lock.
pub(crate) struct Countdown {
    remaining: AtomicUsize,
    quiet: Notify,
}

impl Countdown {
    /// A countdown at the beginning of a walk. One call of [`Countdown::decrement`] ends the walk.
    pub(crate) fn of_walk() -> Self {
        Self {
            remaining: AtomicUsize::new(1),
            quiet: Notify::new(),
        }
    }

    /// Adds this number of groups or engines to wait for.
    pub(crate) fn more(&self, groups: usize) {
        self.remaining.fetch_add(groups, Ordering::Relaxed);
    }

    /// Subtracts one: a group in which all work has ended, an engine, or the walk itself.
    pub(crate) fn decrement(&self) {
        // The release makes the effects of the work visible to a thread that reads zero (acquire) and then creates the
        // receipt.
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.quiet.notify_one();
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    pub(crate) async fn quiet(&self) {
        while !self.is_quiet() {
            self.quiet.notified().await;
        }
    }
}
