//! Progress of a stop that has no receipt yet.

/// Progress of a stop that has no receipt yet. The stop is durable in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopDelivery {
    /// The owner of the task is stopping it.
    Observed,
    /// The owner has a lease and has not answered.
    Queued,
    /// No worker has the task. The next worker that takes the task ends it.
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
