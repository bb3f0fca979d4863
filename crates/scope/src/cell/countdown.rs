//! The countdown of one stop: the number of cells in which something still runs, and the signal that nothing does.

use crate::sync::{AtomicUsize, Notify, Ordering};

/// Counts the cells that the walk has reached and in which something runs, plus one during the walk, so that the count
/// is zero only when everything that the stop covers has ended. Once zero it stays zero, because nothing starts behind
/// a barrier. The work of one cell is counted in the cell, under its lock.
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

    /// Adds cells, or engines, to wait for.
    pub(crate) fn more(&self, cells: usize) {
        self.remaining.fetch_add(cells, Ordering::Relaxed);
    }

    /// Subtracts a cell in which all work has ended, an engine, or the walk.
    pub(crate) fn one_less(&self) {
        // Release: the effects of the work happen before a receipt that is made after an acquiring read of zero.
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
