//! Violations: each names the broken promise, and the class of the failure that users notice.

use std::fmt;

/// The promises of the design, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// 1. No detached work.
    NoDetachedWork = 1,
    /// 2. No half turn.
    NoHalfTurn,
    /// 3. No claim beyond the verified facts.
    NoClaimBeyondVerified,
    /// 4. No acknowledgement without the engine.
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

/// Classes of failures that users notice if a promise is broken. Such failures occur in other agent systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// A conversation that no provider accepts.
    CorruptHistory = 1,
    /// Processes and tasks that continue to run.
    OrphanWork,
    /// A signal that does not reach the running work.
    SignalMissesLeaf,
    /// A stop that is lost in a race.
    LostStop,
    /// Work that starts or a commit that happens after the stop.
    WorkAfterStop,
    /// A receipt of a stop that reports a false fact.
    FalseReceipt,
    /// Output or usage that is lost.
    LostBill,
    /// A stop that covers too much or too little work, or a session that reports idle too early.
    WrongExtent,
    /// A side effect that happens twice.
    RepeatedEffect,
    /// A reply that comes twice or too late.
    StaleReply,
    /// An answer that never comes.
    Hang,
    /// A run that spends more than the budget allows.
    Overspent,
    /// A cause that is lost.
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
    /// Class of failure that users notice.
    pub class: FailureClass,
    /// Description of the difference between the promise and the observation.
    pub what: String,
}
