//! Checks that a scenario brings itself: whether what its parts did to the world is whole.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::violation::{FailureClass, Invariant, Violation};

/// Check that says in words what is wrong.
type Check = Box<dyn Fn() -> Result<(), String> + Send>;

/// The checks of one run. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct OwnChecks(Arc<Mutex<Vec<OwnCheck>>>);

struct OwnCheck {
    name: &'static str,
    invariant: Invariant,
    class: FailureClass,
    check: Check,
}

impl OwnChecks {
    pub(crate) fn add(
        &self,
        name: &'static str,
        (invariant, class): (Invariant, FailureClass),
        check: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        self.0.lock().push(OwnCheck {
            name,
            invariant,
            class,
            check: Box::new(check),
        });
    }

    /// Looks when every stop is answered.
    pub(crate) fn look(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.look_for("", &mut found);
        found
    }

    /// Looks when all is over, and adds what is wrong and was not then.
    pub(crate) fn look_again(&self, known: &mut Vec<Violation>) {
        self.look_for("whole when the stop was answered, and not later: ", known);
    }

    fn look_for(&self, when: &str, known: &mut Vec<Violation>) {
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

impl fmt::Debug for OwnChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnChecks").finish_non_exhaustive()
    }
}
