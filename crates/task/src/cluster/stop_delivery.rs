//! Progress of a stop that has no receipt yet.

/// Progress of a stop that has no receipt yet. The stop request is durable in all cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopDelivery {
    /// The owner of the task (the worker that runs it) is stopping the task.
    Observed,
    /// The owner has not confirmed the stop yet, or cannot be reached.
    Queued,
    /// No worker owns the task. The next worker that takes the task ends it.
    NoOwner,
}

impl StopDelivery {
    /// Name of the progress in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Queued => "queued",
            Self::NoOwner => "no_owner",
        }
    }
}
