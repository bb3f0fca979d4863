//! Checks of a scenario itself: they verify that the scenario's effects outside the process are complete, or do not
//! exist.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::violation::{FailureClass, Invariant, Violation};

/// Check that returns a description of the violation.
type Check = Box<dyn Fn() -> Result<(), String> + Send>;

/// The checks of one run. Clones share the checks.
#[derive(Clone, Default)]
pub(crate) struct ScenarioChecks(Arc<Mutex<Vec<ScenarioCheck>>>);

struct ScenarioCheck {
    name: &'static str,
    invariant: Invariant,
    class: FailureClass,
    check: Check,
}

impl ScenarioChecks {
    pub(crate) fn add(
        &self,
        name: &'static str,
        (invariant, class): (Invariant, FailureClass),
        check: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        self.0.lock().push(ScenarioCheck {
            name,
            invariant,
            class,
            check: Box::new(check),
        });
    }

    /// Runs the checks when every stop has its answer.
    pub(crate) fn run(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.run_for("", &mut found);
        found
    }

    /// Runs the checks again at the very end, and adds the violations that were not found before.
    pub(crate) fn run_again(&self, known: &mut Vec<Violation>) {
        self.run_for("whole when the stop was answered, and not later: ", known);
    }

    fn run_for(&self, when: &str, known: &mut Vec<Violation>) {
        for own in &*self.0.lock() {
            if known.iter().any(|known| known.checker == own.name) {
                continue;
            }
            if let Err(what) = (own.check)() {
                known.push(Violation {
                    checker: own.name,
                    invariant: own.invariant,
                    class: own.class,
                    what: format!("{when}{what}"),
                });
            }
        }
    }
}

impl fmt::Debug for ScenarioChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScenarioChecks").finish_non_exhaustive()
    }
}
