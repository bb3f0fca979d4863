//! Broken promises: which one, and as which class of failure users meet it.

use std::fmt;

/// The promises of the design, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// 1. No detached work.
    NoDetachedWork = 1,
    /// 2. No half turn.
    NoHalfTurn,
    /// 3. No claim beyond what was verified.
    NoClaimBeyondVerified,
    /// 4. No acknowledgement that reads back its own flag.
    NoSelfAcknowledgement,
    /// 5. No start behind the barrier.
    NoStartBehindBarrier,
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
    /// 11. No lost bill.
    NoLostBill,
    /// 12. No mixed causes.
    NoMixedCauses,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDetachedWork => "no detached work",
            Self::NoHalfTurn => "no half turn",
            Self::NoClaimBeyondVerified => "no claim beyond what was verified",
            Self::NoSelfAcknowledgement => "no acknowledgement of its own flag",
            Self::NoStartBehindBarrier => "no start behind the barrier",
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

/// Classes of failures as which users of agents meet broken promises: those that other systems have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// A history that no provider takes.
    CorruptHistory = 1,
    /// Processes and tasks that live on.
    OrphanWork,
    /// The signal does not reach what runs.
    SignalMissesLeaf,
    /// The stop is lost in a race.
    LostStop,
    /// Work or a commit after the stop.
    WorkAfterStop,
    /// The receipt says what is not so.
    FalseReceipt,
    /// Output or a bill is lost.
    LostBill,
    /// Too much is stopped, or too little, or idle is told too early.
    WrongExtent,
    /// A side effect happens twice.
    RepeatedEffect,
    /// A reply comes twice, or after its time.
    StaleReply,
    /// Nothing comes at all.
    Hang,
    /// More is spent than there is.
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
    /// Checker that saw it.
    pub checker: &'static str,
    /// Promise that is broken.
    pub invariant: Invariant,
    /// Class of failure as which users meet it.
    pub class: FailureClass,
    /// Difference between promise and observation, in words.
    pub what: String,
}
