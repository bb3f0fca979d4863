//! What must hold of a session beside what holds of every run: messages, superseding, background work, idle.

mod background;
mod idle;
mod outcomes;
mod stale;
mod stopped;
mod superseded;
mod undone;
mod waiter;

#[cfg(test)]
mod tests;

pub(crate) use background::background;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::{SentMessage, SessionAftermath};

/// Every checker of sessions. The others apply to them too.
pub const SESSION_CHECKERS: [Checker; 9] = [
    outcomes::CHECKER,
    superseded::CHECKER,
    stale::CHECKER,
    stopped::STAYS,
    stopped::BARRIER,
    background::CHECKER,
    idle::CHECKER,
    undone::CHECKER,
    waiter::CHECKER,
];

/// Messages that were taken.
fn taken(session: &SessionAftermath) -> impl Iterator<Item = &SentMessage> {
    session.sent.iter().filter(|sent| sent.id.is_some())
}
