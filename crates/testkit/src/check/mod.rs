//! Checkers: rules that hold after a stop at any point. Each checker names the [`Invariant`] (a promise of the design)
//! that its rule verifies. Every driver applies all checkers to its observations. You can apply some of the checkers to
//! your own records or messages.

mod background;
mod calls;
mod confirmed;
mod conversation;
mod delivery;
mod leftovers;
mod messages;
mod receipt;
mod record_facts;
mod records;
mod stop;
mod usage;

#[cfg(test)]
mod falsified_runs_tests;

pub use crate::violation::{FailureClass, Invariant, Violation};
pub(crate) use background::background;
pub use conversation::{conversation_of, history};
pub use records::{endings, recovers_from_everywhere};
pub use usage::metered;

use crate::observe::{EvidenceKind, RunObservation};
use {EvidenceKind as E, FailureClass as F, Invariant as I};

/// Checks one promise, in runs of every driver.
#[derive(Debug)]
pub struct Checker {
    /// Name in reports and tests.
    pub name: &'static str,
    /// Promise that the checker verifies.
    pub invariant: Invariant,
    /// Class of the failure that users notice if the promise is broken.
    pub class: FailureClass,
    needs: EvidenceKind,
    judge: fn(&RunObservation) -> Result<(), String>,
}

/// All checkers. If several find violations, the first violation in this order explains the broken run best.
#[rustfmt::skip] // One row for each checker.
pub static CHECKERS: [Checker; 43] = [
    rule("killed", I::NoHalfTurn, F::CorruptHistory, E::Kill, records::was_killed),
    rule("repeatable", I::NoClaimBeyondVerified, F::FalseReceipt, E::Witness, records::is_repeatable),
    rule("waiters", I::NoDetachedWork, F::Hang, E::Run, stop::every_stop_is_answered),
    rule("history", I::NoInvalidHistory, F::CorruptHistory, E::Records, conversation::requests_are_valid),
    rule("endings", I::NoSecondEnding, F::WorkAfterStop, E::Records, records::one_ending_each),
    rule("commit_after_stop", I::NoHalfTurn, F::WorkAfterStop, E::Witness, stop::no_commit_after_a_stop),
    rule("lost_stop", I::NoMixedCauses, F::LostStop, E::Run, stop::no_stop_is_lost),
    rule("confirmed", I::NoClaimBeyondVerified, F::FalseReceipt, E::Witness, confirmed::claims_are_confirmed),
    rule("conversation", I::NoHalfTurn, F::WorkAfterStop, E::Records, conversation::turns_are_whole),
    rule("receipt_true", I::NoClaimBeyondVerified, F::FalseReceipt, E::Run, receipt::all_true),
    rule("processes", I::NoClaimBeyondVerified, F::FalseReceipt, E::Machine, leftovers::quiet_is_quiet),
    rule("connections", I::NoClaimBeyondVerified, F::SignalMissesLeaf, E::Machine, leftovers::stopped_calls_are_closed),
    rule("one_receipt", I::NoSecondEnding, F::StaleReply, E::Run, receipt::one_stop_one_receipt),
    rule("extent", I::NoClaimBeyondVerified, F::WrongExtent, E::Witness, receipt::nothing_outside_the_extent),
    rule("cancel_observed", I::NoSelfAcknowledgement, F::FalseReceipt, E::Run, stop::cancel_was_observed),
    rule("acknowledged", I::NoSelfAcknowledgement, F::SignalMissesLeaf, E::Run, stop::engine_has_acknowledged),
    rule("patient", I::NoDetachedWork, F::WrongExtent, E::Run, stop::force_time_is_used),
    rule("barrier", I::NoStartAfterBarrier, F::WorkAfterStop, E::Witness, stop::nothing_starts_after_stop),
    rule("cause", I::NoMixedCauses, F::LostCause, E::Run, stop::first_cause_wins),
    rule("outcome_word", I::NoMixedCauses, F::LostCause, E::Witness, calls::outcome_fits),
    rule("delivery", I::NoSecondEnding, F::StaleReply, E::Witness, delivery::nothing_late_is_shown),
    rule("received", I::NoLostBill, F::LostBill, E::Witness, delivery::nothing_late_is_received),
    rule("late_result", I::NoSecondEnding, F::StaleReply, E::Records, calls::no_late_result),
    rule("appended", I::NoHalfTurn, F::CorruptHistory, E::Points, records::log_is_complete),
    rule("durable_start", I::NoSilentRepeat, F::RepeatedEffect, E::Records, calls::start_is_durable),
    rule("usage", I::NoLostBill, F::LostBill, E::Records, usage::nothing_is_lost),
    rule("budget", I::NoLostBill, F::Overspent, E::Witness, usage::nothing_stays_reserved),
    rule("overspent", I::NoLostBill, F::Overspent, E::Witness, usage::nothing_starts_beyond_the_budget),
    rule("repeats", I::NoSilentRepeat, F::RepeatedEffect, E::Calls, calls::no_call_repeats),
    rule("recovery", I::NoHalfTurn, F::CorruptHistory, E::Records, records::recovers),
    rule("next_message", I::NoInvalidHistory, F::CorruptHistory, E::Next, conversation::next_message_is_taken),
    rule("leftovers", I::NoDetachedWork, F::OrphanWork, E::Run, leftovers::nothing_lives_on),
    rule("child_processes", I::NoDetachedWork, F::OrphanWork, E::Witness, leftovers::no_child_is_left),
    rule("delivered_facts", I::NoHalfTurn, F::LostBill, E::Delivered, messages::delivered_facts_are_logged),
    rule("one_outcome", I::NoSecondEnding, F::StaleReply, E::Records, messages::one_outcome_each),
    rule("superseded", I::NoHalfTurn, F::WorkAfterStop, E::Session, messages::superseded_is_unanswered),
    rule("stale_reply", I::NoSecondEnding, F::StaleReply, E::Session, delivery::nothing_stale_is_shown),
    rule("stopped_message", I::NoMixedCauses, F::LostStop, E::Session, messages::stays_stopped),
    rule("closed_barrier", I::NoStartAfterBarrier, F::WorkAfterStop, E::Session, messages::nothing_begins),
    rule("background_once", I::NoSecondEnding, F::OrphanWork, E::Records, background::background_ends_once),
    rule("true_idle", I::NoClaimBeyondVerified, F::WrongExtent, E::Session, background::idle_is_true),
    rule("undone", I::NoHalfTurn, F::FalseReceipt, E::Session, messages::undone_once),
    rule("waiter_gone", I::NoMixedCauses, F::WrongExtent, E::Session, messages::waiter_stops_nothing),
];

const fn rule(
    name: &'static str,
    invariant: Invariant,
    class: FailureClass,
    needs: EvidenceKind,
    judge: fn(&RunObservation) -> Result<(), String>,
) -> Checker {
    Checker {
        name,
        invariant,
        class,
        needs,
        judge,
    }
}

/// Rules that need the endings and the usage in the log. After a failure of the store, the log lacks these records, and
/// the checker `confirmed` contains the rules that apply.
const NEED_THE_STORE: [&str; 7] = [
    "true_idle",
    "stopped_message",
    "one_outcome",
    "delivered_facts",
    "superseded",
    "usage",
    "lost_stop",
];

impl Checker {
    /// True if the observation has the evidence that this checker needs.
    pub fn applies(&self, run: &RunObservation) -> bool {
        let has_store = run.store_fault.is_none() || !NEED_THE_STORE.contains(&self.name);
        run.has(self.needs) && has_store
    }

    /// Returns the first violation of the promise in this run.
    pub fn check(&self, run: &RunObservation) -> Option<Violation> {
        let what = (self.judge)(run).err()?;
        Some(Violation {
            checker: self.name,
            invariant: self.invariant,
            class: self.class,
            what,
        })
    }
}

/// Applies the checks that the scenario itself has registered, and then every checker.
pub fn check(run: &RunObservation) -> Vec<Violation> {
    let own = run.own.iter().cloned();
    let applied = CHECKERS.iter().filter(|checker| checker.applies(run));
    own.chain(applied.filter_map(|checker| checker.check(run)))
        .collect()
}
