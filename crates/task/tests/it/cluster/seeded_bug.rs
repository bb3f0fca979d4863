//! Bugs that the simulation must find. Each removes one rule of the cluster.

/// A rule that the nodes violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// The log accepts every append, even if others have written since the writer's last read.
    SkippedFence,
    /// Leases end by the time of day, which jumps.
    WallClockExpiry,
    /// A worker treats a wake-up as the right to run the task: it counts every lease of others as ended.
    AckAsOwnership,
    /// A claim neither reads a stop request nor fails because of one.
    IntentNotChecked,
}
