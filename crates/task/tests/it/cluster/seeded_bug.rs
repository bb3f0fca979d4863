//! Bugs that the simulation must find. Each bug removes one rule of the cluster.

/// A rule that the nodes violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// The log accepts every append, even if other processes have written since the last read of the writer.
    SkippedFence,
    /// Leases expire by the time of day, and this time jumps.
    WallClockExpiry,
    /// A worker with a wake-up (a hint that a task needs a worker) assumes that the task belongs to it. The worker
    /// treats the leases of all other workers as ended.
    AckAsOwnership,
    /// A worker that claims a task does not check for a stop request.
    IntentNotChecked,
}
