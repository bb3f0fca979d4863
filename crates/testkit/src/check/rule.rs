//! The trait of checkers, and the rule that most of them are.

use crate::observe::{EvidenceKind, RunObservation};
use crate::violation::{FailureClass, Invariant, Violation};

/// Judge of one promise, for runs of every driver.
pub trait Checker: Sync {
    /// Its name, by which reports and tests know it.
    fn name(&self) -> &'static str;

    /// Promise that it stands for.
    fn invariant(&self) -> Invariant;

    /// Class of failure that users meet where the promise is broken.
    fn class(&self) -> FailureClass;

    /// True if the observation has the evidence that this needs.
    fn applies(&self, observation: &RunObservation) -> bool;

    /// Everything that the run broke of it.
    fn check(&self, observation: &RunObservation) -> Vec<Violation>;
}

/// Rules that ask the log for endings and usage, which are not there when the store has failed. There `confirmed` says
/// what holds.
const NEED_THE_STORE: [&str; 7] = [
    "true_idle",
    "stopped_message",
    "one_outcome",
    "told",
    "superseded",
    "usage",
    "lost_stop",
];

/// Checker that is one function. It applies where the observation has any of the named evidence.
#[derive(Debug)]
pub(super) struct CheckerRule {
    pub(super) name: &'static str,
    pub(super) invariant: Invariant,
    pub(super) class: FailureClass,
    pub(super) needs: &'static [EvidenceKind],
    pub(super) check: fn(&RunObservation) -> Result<(), String>,
}

impl Checker for CheckerRule {
    fn name(&self) -> &'static str {
        self.name
    }

    fn invariant(&self) -> Invariant {
        self.invariant
    }

    fn class(&self) -> FailureClass {
        self.class
    }

    fn applies(&self, observation: &RunObservation) -> bool {
        let has_store = observation.store_fault.is_none() || !NEED_THE_STORE.contains(&self.name);
        let mut needs = self.needs.iter();
        needs.any(|evidence| observation.has(*evidence)) && has_store
    }

    fn check(&self, observation: &RunObservation) -> Vec<Violation> {
        let wrong = (self.check)(observation).err();
        let violation = wrong.map(|what| Violation {
            checker: self.name,
            invariant: self.invariant,
            class: self.class,
            what,
        });
        violation.into_iter().collect()
    }
}
