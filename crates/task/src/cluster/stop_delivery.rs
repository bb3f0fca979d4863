//! Progress of a stop that has no receipt yet.

/// Progress of a stop that has no receipt yet. The stop request is durable in all cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopDelivery {
    /// The owner of the task is stopping it.
    Observed,
    /// The owner has a valid lease but has not answered.
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
