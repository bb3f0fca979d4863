//! Scenarios of Allstop's own agent: what it is explored with at every change. Read them as examples.

mod turns;

use crate::explore::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    turns::all().into()
}
