//! Bugs that the simulation has to find: each takes one rule of the cluster away.

/// A rule that nobody keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// The log takes every append, whatever has been written since its writer read.
    SkippedFence,
    /// Leases are ended by the time of day, which jumps.
    WallClockExpiry,
    /// A worker takes a wake-up for the right to run the task: it counts every lease of others as ended.
    AckAsOwnership,
    /// A claim neither sees a request to stop nor fails because of it.
    IntentNotChecked,
}
