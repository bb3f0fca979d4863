//! Progress of a stop whose receipt is not there yet.

/// Progress of a stop that has no receipt yet. It is durable in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopDelivery {
    /// The owner of the task is stopping it.
    Observed,
    /// The owner has a lease and has not answered.
    Queued,
    /// No worker has the task: the next one that takes it ends it.
    NoOwner,
}

impl StopDelivery {
    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Queued => "queued",
            Self::NoOwner => "no_owner",
        }
    }
}
