//! Violations: the broken promise, and the class of failure that users meet.

use std::fmt;

/// The promises of the design, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// 1. No detached work.
    NoDetachedWork = 1,
    /// 2. No half turn.
    NoHalfTurn,
    /// 3. No claim beyond the verified facts.
    NoClaimBeyondVerified,
    /// 4. No acknowledgement that reads back its own flag.
    NoSelfAcknowledgement,
    /// 5. No start after the stop barrier.
    NoStartAfterBarrier,
    /// 6. No second ending.
    NoSecondEnding,
    /// 7. No invalid history.
    NoInvalidHistory,
    /// 8. No blocked producer.
    NoBlockedProducer,
    /// 9. No two writers.
    NoTwoWriters,
    /// 10. No silent repeat.
    NoSilentRepeat,
    /// 11. No lost usage.
    NoLostBill,
    /// 12. No mixed causes.
    NoMixedCauses,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDetachedWork => "no detached work",
            Self::NoHalfTurn => "no half turn",
            Self::NoClaimBeyondVerified => "no claim beyond the verified facts",
            Self::NoSelfAcknowledgement => "no self-acknowledgement",
            Self::NoStartAfterBarrier => "no start after the barrier",
            Self::NoSecondEnding => "no second ending",
            Self::NoInvalidHistory => "no invalid history",
            Self::NoBlockedProducer => "no blocked producer",
            Self::NoTwoWriters => "no two writers",
            Self::NoSilentRepeat => "no silent repeat",
            Self::NoLostBill => "no lost bill",
            Self::NoMixedCauses => "no mixed causes",
        })
    }
}

/// Classes of failure that users meet if a promise is broken. They occur in other systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// A history that no provider accepts.
    CorruptHistory = 1,
    /// Processes and tasks that continue to run.
    OrphanWork,
    /// The signal does not reach the running work.
    SignalMissesLeaf,
    /// The stop is lost in a race.
    LostStop,
    /// Work or a commit after the stop.
    WorkAfterStop,
    /// The receipt reports a false fact.
    FalseReceipt,
    /// Output or usage is lost.
    LostBill,
    /// Too much or too little is stopped, or idle is reported too early.
    WrongExtent,
    /// A side effect happens twice.
    RepeatedEffect,
    /// A reply comes twice or too late.
    StaleReply,
    /// An answer never comes.
    Hang,
    /// More is spent than the budget allows.
    Overspent,
    /// The cause is lost.
    LostCause,
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::CorruptHistory => "corrupt history",
            Self::OrphanWork => "orphan work",
            Self::SignalMissesLeaf => "signal misses the leaf",
            Self::LostStop => "stop lost in a race",
            Self::WorkAfterStop => "work or commit after the stop",
            Self::FalseReceipt => "false receipt",
            Self::LostBill => "output or bill lost",
            Self::WrongExtent => "wrong extent",
            Self::RepeatedEffect => "repeated side effect",
            Self::StaleReply => "stale or double reply",
            Self::Hang => "hang",
            Self::Overspent => "overspent",
            Self::LostCause => "cause lost",
        };
        write!(f, "F{:<2} {words}", *self as u8)
    }
}

/// Promise that a run broke.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Checker that found the violation.
    pub checker: &'static str,
    /// Promise that is broken.
    pub invariant: Invariant,
    /// Class of failure that users meet.
    pub class: FailureClass,
    /// Description of the difference between promise and observation.
    pub what: String,
}
