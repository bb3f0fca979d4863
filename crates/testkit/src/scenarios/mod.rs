//! Scenarios of Allstop's own agent. The tests explore these scenarios at every change. You can also read the scenarios
//! as examples.

mod background;
mod conversation_model;
mod delegated;
mod gates;
mod limits;
mod parts;
mod runs;
mod sessions;

use crate::explore::Scenario;
pub(crate) use parts::{deaf, listening};

/// Every scenario of runs.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::from(runs::all());
    all.extend(gates::all());
    all.extend(limits::all());
    all
}

/// Scenarios of sessions.
pub fn sessions() -> Vec<Scenario> {
    let mut all = Vec::from(sessions::all());
    all.extend(background::all());
    all.extend(delegated::all());
    all
}

/// All scenarios.
pub fn everything() -> Vec<Scenario> {
    let mut everything = all();
    everything.extend(sessions());
    everything
}

#[cfg(test)]
mod tests {
    use crate::drive::by_point::undisturbed;

    /// A word in the name of a scenario, and the record that the log of this scenario must contain.
    const DONE: [(&str, &str); 5] = [
        ("background", "background_started"),
        ("promote", "background_started"),
        ("steer", "message_steered"),
        ("compaction", "compacted"),
        ("interrupt", "turn_stopped"),
    ];

    /// If a scenario does not do the thing that its name promises, no test explores that thing.
    #[test]
    fn scenarios_do_as_their_names_promise() {
        for scenario in super::sessions() {
            let name = scenario.name().to_string();
            let logged = undisturbed(&scenario).points;
            for (_, record) in DONE.iter().filter(|(word, _)| name.contains(word)) {
                let is_there = logged.iter().any(|point| point.subject.contains(record));
                assert!(is_there, "{name}: nothing of `{record}` is in the log");
            }
        }
    }
}
