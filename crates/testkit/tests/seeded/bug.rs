//! The seeded bugs. For each bug: a description, the class of the failure for users, and the checker that must find the
//! bug.

use allstop_core::{CauseKind, Extent};
use allstop_testkit::check::FailureClass;
use allstop_testkit::explore::{StopMethod, StoreFault};

use crate::scenario::Setting;

/// A bug that occurs in real agents. The tests seed the bug into the sloppy engine, an engine that was written for
/// these tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The commit checks for a stop, waits, and then commits without another check.
    CommitBesideStop,
    /// Under the stop policy `keep`, calls that have no result get none in the kept messages.
    MissingResult,
    /// A call in an answer that was cut off is kept, and gets a result.
    HalfCallAnswered,
    /// Under the stop policy `rollback`, the user's message stays in the conversation.
    HalfTurnLeft,
    /// The ends of open calls are written after the ending of the turn.
    AppendAfterEnding,
    /// If the caller leaves, the engine writes no ending.
    NoEnding,
    /// The stop is answered as soon as the cancellation token is cancelled.
    PrematureQuiet,
    /// The stop is answered immediately, and the receipt of the stop contains the work that runs at that moment.
    GivesUpAtOnce,
    /// A dropped call is reported as stopped, although it may have had an effect outside the process.
    DroppedIsStopped,
    /// The engine ends without an acknowledgement of the stop.
    NeverAcknowledges,
    /// A stop that comes when the engine has just ended is never answered.
    LostWakeUp,
    /// The engine waits for the result of a dropped call.
    WaitsForTheDropped,
    /// After a stop, the engine stays marked as busy, so that the next run waits for ever.
    BusyForEver,
    /// Two stops of the same turn get different receipts.
    TwoReceipts,
    /// Tools run in tasks that are not registered in any scope.
    LeakedChild,
    /// A stopped turn leaves a helper process running. The helper is a real process.
    ForgottenProcess,
    /// Tools run in the scope of the session, which the stop of a turn does not reach.
    SignalMissesLeaf,
    /// The usage of a stopped call is lost.
    UsageReset,
    /// The usage of a model call is written only after its tools have ended.
    BillAtTheEnd,
    /// After a stop, the engine continues to receive the answer until the end of the answer.
    AnswerDrained,
    /// After a stop, the engine continues to show the answer until the end of the answer.
    AnswerShownAfterStop,
    /// A result is accepted although it arrives after the engine has received the stop.
    LateResultTaken,
    /// If the stopped turn refuses to start a tool, the tool starts in the scope of the session instead.
    StartBehindBarrier,
    /// A stop that comes before the start of the turn is lost.
    StopBeforeStart,
    /// The cause of the last stop replaces the cause of the first stop.
    CauseOverwritten,
    /// A stop of the turn ends background work.
    BackgroundKilled,
    /// A call without a result is repeated.
    Repeat,
    /// A tool runs before its start is durable.
    StartNotDurable,
    /// The reservation of a stopped call is not released.
    KeptReservation,
    /// Tool calls do not count against the budget.
    CallsBesideBudget,
    /// The tokens of an answer do not count against the budget.
    TokensBesideBudget,
    /// The engine reports that it has acknowledged a stop, only because it sees the flag that the stop itself has set.
    ObservedByFlag,
    /// A stopped call is reported as timed out.
    StoppedIsTimedOut,
    /// A commit is published although the store refused it.
    PublishedUnwritten,
    /// An ending that may still be written is reported as if the conversation were unchanged.
    UnknownIsUnchanged,
}

/// The expected result of the exploration of a bug.
pub(crate) struct Expected {
    pub(crate) class: FailureClass,
    /// The checker that must find the bug.
    pub(crate) checker: &'static str,
    /// The smallest setting in which the bug has an effect.
    pub(crate) setting: Setting,
    /// The only method that the test explores. Most bugs also have an effect with other methods, but these methods take
    /// more time.
    pub(crate) method: StopMethod,
}

impl Bug {
    /// The class of the failure for users, the checker that must find the bug, the setting, and the method.
    pub(crate) fn expected(self) -> Expected {
        use FailureClass as F;
        use StopMethod as By;
        let (class, checker, setting, method) = match self {
            Self::MissingResult => (F::CorruptHistory, "history", Setting::Kept, By::USER),
            Self::HalfCallAnswered => (F::CorruptHistory, "conversation", Setting::Kept, By::USER),
            Self::BillAtTheEnd => (F::CorruptHistory, "recovery", Setting::Tools, By::USER),
            Self::LeakedChild => (F::OrphanWork, "leftovers", Setting::Tools, By::USER),
            Self::ForgottenProcess => (F::OrphanWork, "child_processes", Setting::Answer, By::USER),
            Self::SignalMissesLeaf => (
                F::SignalMissesLeaf,
                "receipt_true",
                Setting::Tools,
                By::USER,
            ),
            Self::StopBeforeStart => (F::LostStop, "commit_after_stop", Setting::Answer, By::USER),
            Self::NoEnding => (F::LostStop, "lost_stop", Setting::Answer, By::Drop),
            Self::CommitBesideStop => (
                F::WorkAfterStop,
                "commit_after_stop",
                Setting::Answer,
                By::USER,
            ),
            Self::AppendAfterEnding => (F::WorkAfterStop, "endings", Setting::Tools, By::USER),
            Self::StartBehindBarrier => (F::WorkAfterStop, "barrier", Setting::Tools, By::USER),
            Self::HalfTurnLeft => (F::WorkAfterStop, "conversation", Setting::Answer, By::USER),
            Self::PrematureQuiet | Self::DroppedIsStopped => {
                (F::FalseReceipt, "receipt_true", Setting::Tools, By::USER)
            }
            Self::NeverAcknowledges => (
                F::SignalMissesLeaf,
                "acknowledged",
                Setting::Answer,
                By::USER,
            ),
            Self::GivesUpAtOnce => (F::WrongExtent, "patient", Setting::Tools, By::USER),
            Self::UsageReset => (F::LostBill, "usage", Setting::Answer, By::USER),
            Self::AnswerDrained => (F::LostBill, "received", Setting::Answer, By::USER),
            Self::BackgroundKilled => (F::WrongExtent, "extent", Setting::Background, By::USER),
            Self::Repeat => (
                F::RepeatedEffect,
                "repeats",
                Setting::Tools,
                By::Stop(Extent::Call, CauseKind::User),
            ),
            Self::StartNotDurable => (F::RepeatedEffect, "durable_start", Setting::Tools, By::USER),
            Self::TwoReceipts => (F::StaleReply, "one_receipt", Setting::Answer, By::Again(1)),
            Self::AnswerShownAfterStop => (F::StaleReply, "delivery", Setting::Answer, By::USER),
            Self::LateResultTaken => (F::StaleReply, "late_result", Setting::Tools, By::USER),
            Self::LostWakeUp => (F::Hang, "waiters", Setting::Answer, By::USER),
            Self::WaitsForTheDropped => (F::Hang, "waiters", Setting::Tools, By::USER),
            Self::BusyForEver => (F::Hang, "next_message", Setting::Answer, By::USER),
            Self::KeptReservation => (F::Overspent, "budget", Setting::Answer, By::USER),
            Self::CallsBesideBudget => (F::Overspent, "overspent", Setting::Budget, By::USER),
            Self::TokensBesideBudget => (F::Overspent, "overspent", Setting::Tokens, By::USER),
            Self::ObservedByFlag => (
                F::FalseReceipt,
                "cancel_observed",
                Setting::Answer,
                By::USER,
            ),
            Self::StoppedIsTimedOut => (
                F::LostCause,
                "outcome_word",
                Setting::Tools,
                By::Stop(Extent::Call, CauseKind::User),
            ),
            Self::PublishedUnwritten => (
                F::FalseReceipt,
                "confirmed",
                Setting::Answer,
                By::Store(StoreFault::RefusesOnce),
            ),
            Self::UnknownIsUnchanged => (
                F::FalseReceipt,
                "confirmed",
                Setting::Kept,
                By::Store(StoreFault::EndsLate),
            ),
            Self::CauseOverwritten => (F::LostCause, "cause", Setting::Answer, By::Wider(1)),
        };
        Expected {
            class,
            checker,
            setting,
            method,
        }
    }
}

/// Every bug, grouped by class of failure.
pub(crate) const BUGS: [Bug; 35] = [
    Bug::MissingResult,
    Bug::HalfCallAnswered,
    Bug::BillAtTheEnd,
    Bug::LeakedChild,
    Bug::ForgottenProcess,
    Bug::SignalMissesLeaf,
    Bug::NeverAcknowledges,
    Bug::StopBeforeStart,
    Bug::NoEnding,
    Bug::CommitBesideStop,
    Bug::AppendAfterEnding,
    Bug::StartBehindBarrier,
    Bug::HalfTurnLeft,
    Bug::PrematureQuiet,
    Bug::DroppedIsStopped,
    Bug::UsageReset,
    Bug::AnswerDrained,
    Bug::GivesUpAtOnce,
    Bug::BackgroundKilled,
    Bug::Repeat,
    Bug::StartNotDurable,
    Bug::TwoReceipts,
    Bug::AnswerShownAfterStop,
    Bug::LateResultTaken,
    Bug::LostWakeUp,
    Bug::WaitsForTheDropped,
    Bug::BusyForEver,
    Bug::KeptReservation,
    Bug::CallsBesideBudget,
    Bug::TokensBesideBudget,
    Bug::ObservedByFlag,
    Bug::StoppedIsTimedOut,
    Bug::CauseOverwritten,
    Bug::PublishedUnwritten,
    Bug::UnknownIsUnchanged,
];
