//! Checkers: what must hold after a stop at any point, one file for each promise. Each can be used alone, on records,
//! messages or a receipt of your own; the explorer applies [`CHECKERS`] to every run.

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
mod ladder;
mod late_result;
mod leftovers;
mod next_message;
mod observed;
mod outcome_word;
mod receipt;
mod received;
mod recovery;
mod repeats;
mod session;
mod usage;
mod waiters;
mod words;

pub use conversation::conversation_of;
pub use endings::endings;
pub use history::history;
pub use recovery::recovers_from_everywhere;
pub use session::SESSION_CHECKERS;
pub(crate) use session::background;
pub use usage::metered;
pub use words::{FailureClass, Invariant};

use allstop_core::record::SessionRecord;

use crate::explore::Aftermath;

/// What an undisturbed run left: what a stopped one is compared with.
pub type Undisturbed = Aftermath;

/// One promise, and how it is checked.
#[derive(Debug)]
pub struct Checker {
    /// Its name.
    pub name: &'static str,
    /// Which promise.
    pub invariant: Invariant,
    /// What users see where it is broken.
    pub class: FailureClass,
    /// The check. What is wrong, in words.
    pub check: fn(&Aftermath, &Undisturbed) -> Result<(), String>,
}

/// Every checker, in the order in which a broken run is best understood.
pub const CHECKERS: [Checker; 28] = [
    waiters::CHECKER,
    history::CHECKER,
    endings::CHECKER,
    commit::AFTER_STOP,
    commit::LOST_STOP,
    confirmed::CHECKER,
    conversation::CHECKER,
    receipt::TRUE,
    receipt::ONE,
    receipt::EXTENT,
    observed::CHECKER,
    ladder::ACKNOWLEDGED,
    ladder::PATIENT,
    barrier::CHECKER,
    cause::CHECKER,
    outcome_word::CHECKER,
    delivery::CHECKER,
    received::CHECKER,
    late_result::CHECKER,
    durable::CHECKER,
    usage::METERED,
    usage::RESERVED,
    usage::OVERSPENT,
    repeats::CHECKER,
    recovery::CHECKER,
    next_message::CHECKER,
    leftovers::CHECKER,
    child_processes::CHECKER,
];

/// Checkers that ask the log what it cannot tell where the store has failed: endings and usage that were not written,
/// and a number that the next turn is given again. There [`confirmed`] says what holds.
const NEED_THE_STORE: [&str; 6] = [
    "lost_stop",
    "usage",
    "one_outcome",
    "superseded",
    "stopped_message",
    "true_idle",
];

/// A promise that a run broke.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// Which promise.
    pub invariant: Invariant,
    /// What users see of it.
    pub class: FailureClass,
    /// What is wrong.
    pub what: String,
}

/// Applies every checker, after those of the scenario itself.
pub fn check(aftermath: &Aftermath, undisturbed: &Undisturbed) -> Vec<Violation> {
    let own = aftermath.own.iter().cloned();
    own.chain(
        CHECKERS
            .iter()
            .chain(&SESSION_CHECKERS)
            .filter(|checker| {
                aftermath.store_fault.is_none() || !NEED_THE_STORE.contains(&checker.name)
            })
            .filter_map(|checker| {
                let what = (checker.check)(aftermath, undisturbed).err()?;
                Some(Violation {
                    checker: checker.name,
                    invariant: checker.invariant,
                    class: checker.class,
                    what,
                })
            }),
    )
    .collect()
}

/// A record without what is another in each run: a receipt, which has an id, and the marker of processes.
pub(crate) fn without_chance(record: &SessionRecord) -> SessionRecord {
    let mut record = record.clone();
    match &mut record {
        SessionRecord::TurnStopped { receipt, .. } => *receipt = None,
        SessionRecord::BackgroundStarted { marker, .. } => *marker = None,
        _ => {}
    }
    record
}
