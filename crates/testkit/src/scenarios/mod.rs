//! Scenarios of Allstop's own agent: what it is explored with at every change. Read them as examples.

mod behind;
mod elsewhere;
mod gates;
mod limits;
mod models;
mod sessions;
mod shells;
mod talk;
mod turns;

use crate::explore::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(turns::all());
    all.extend(models::all());
    all.extend(gates::all());
    all.extend(limits::all());
    all.extend(shells::all());
    all
}

/// Scenarios of sessions.
pub fn sessions() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(sessions::all());
    all.extend(behind::all());
    all.extend(elsewhere::all());
    all
}

/// All of them.
pub fn everything() -> Vec<Scenario> {
    let mut everything = all();
    everything.extend(sessions());
    everything
}
