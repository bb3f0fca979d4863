//! Checkers: rules that hold after a stop at any point, one file each. Each rule comes from an invariant of the design,
//! which it names. Some can be used alone, on records or messages of your own; every driver applies all of them to what
//! it has observed.

mod appended;
mod background;
mod barrier;
mod cause;
mod child_processes;
mod commit;
mod confirmed;
mod conversation;
mod delivery;
mod durable;
mod endings;
mod history;
mod idle;
mod killed;
mod ladder;
mod late_result;
mod leftovers;
mod machine;
mod next_message;
mod observed;
mod outcome_word;
mod outcomes;
mod receipt;
mod received;
mod recovery;
mod repeatable;
mod repeats;
mod rule;
mod stale;
mod stopped;
mod superseded;
mod told;
mod undone;
mod usage;
mod waiter;
mod waiters;

#[cfg(test)]
mod seeded_lies_tests;

pub use crate::violation::{FailureClass, Invariant, Violation};
pub(crate) use background::background;
pub use conversation::conversation_of;
pub use endings::endings;
pub use history::history;
pub use recovery::recovers_from_everywhere;
pub use rule::Checker;
pub use usage::metered;

use allstop_core::record::SessionRecord;
use rule::CheckerRule;

use crate::observe::RunObservation;

/// Every checker, in the order in which a broken run is best understood.
pub static CHECKERS: [&dyn Checker; 43] = [
    &killed::RULE,
    &repeatable::RULE,
    &waiters::RULE,
    &history::RULE,
    &endings::RULE,
    &commit::AFTER_STOP,
    &commit::LOST_STOP,
    &confirmed::RULE,
    &conversation::RULE,
    &receipt::TRUE,
    &machine::PROCESSES,
    &machine::CONNECTIONS,
    &receipt::ONE,
    &receipt::EXTENT,
    &observed::RULE,
    &ladder::ACKNOWLEDGED,
    &ladder::PATIENT,
    &barrier::RULE,
    &cause::RULE,
    &outcome_word::RULE,
    &delivery::RULE,
    &received::RULE,
    &late_result::RULE,
    &appended::RULE,
    &durable::RULE,
    &usage::METERED,
    &usage::RESERVED,
    &usage::OVERSPENT,
    &repeats::RULE,
    &recovery::RULE,
    &next_message::RULE,
    &leftovers::RULE,
    &child_processes::RULE,
    &told::RULE,
    &outcomes::RULE,
    &superseded::RULE,
    &stale::RULE,
    &stopped::STAYS,
    &stopped::BARRIER,
    &background::RULE,
    &idle::RULE,
    &undone::RULE,
    &waiter::RULE,
];

/// Applies every checker, after those of the scenario itself.
pub fn check(observation: &RunObservation) -> Vec<Violation> {
    let own = observation.own.iter().cloned();
    let applied = CHECKERS
        .iter()
        .filter(|checker| checker.applies(observation));
    own.chain(applied.flat_map(|checker| checker.check(observation)))
        .collect()
}

/// The record without run-specific fields (receipt, marker).
fn without_chance(record: &SessionRecord) -> SessionRecord {
    let mut record = record.clone();
    match &mut record {
        SessionRecord::TurnStopped { receipt, .. } => *receipt = None,
        SessionRecord::BackgroundStarted { marker, .. } => *marker = None,
        _ => {}
    }
    record
}
