//! Behaviour of a simulated process, left alone and under signals.

use std::time::Duration;

/// Behaviour of a process. The default prints nothing and exits with 0 at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Printed texts, each with its time after the start, in the order of time.
    pub prints: Vec<(Duration, String)>,
    /// Time after its start at which it exits by itself, with the code. `None`: never.
    pub exits: Option<(Duration, i32)>,
    /// Time from its first SIGTERM to its end; it prints until then. `None`: it ignores SIGTERM.
    pub term_takes: Option<Duration>,
    /// Time from SIGKILL to its end, in which it prints no more.
    pub kill_takes: Duration,
    /// Processes that it starts at once, by their command lines. Their lives do not depend on its end.
    pub children: Vec<(String, Behaviour)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            prints: Vec::new(),
            exits: Some((Duration::ZERO, 0)),
            term_takes: Some(Duration::ZERO),
            kill_takes: Duration::ZERO,
            children: Vec::new(),
        }
    }
}

impl Behaviour {
    /// A server: says this at once, and runs until it is stopped.
    pub fn server(says: &str) -> Self {
        Self {
            prints: vec![(Duration::ZERO, says.to_owned())],
            exits: None,
            ..Self::default()
        }
    }
}
