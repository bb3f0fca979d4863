//! The countdown of one stop: the number of cells in which something still runs, and the signal that nothing does.

use crate::sync::{AtomicUsize, Notify, Ordering};

/// Counts the cells that the walk has reached and in which something runs, plus one while the walk goes on, so that it is
/// zero only when everything that the stop covers has ended. Once zero it stays zero: what has become empty behind its
/// barrier stays so. How much runs in a cell is counted there, under its lock.
pub(crate) struct Countdown {
    remaining: AtomicUsize,
    quiet: Notify,
}

impl Countdown {
    /// At the beginning of a walk, whose end is one [`Countdown::one_less`].
    pub(crate) fn of_walk() -> Self {
        Self {
            remaining: AtomicUsize::new(1),
            quiet: Notify::new(),
        }
    }

    /// There are so many more cells, or engines, to wait for.
    pub(crate) fn more(&self, cells: usize) {
        self.remaining.fetch_add(cells, Ordering::Relaxed);
    }

    /// All that runs in a cell that was counted has ended, or the walk has.
    pub(crate) fn one_less(&self) {
        // Release: what the work did happens before the receipt of whoever sees zero, which acquires.
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
