//! What a simulated process does, left alone and under signals.

use std::time::Duration;

/// What a process does. The default prints nothing and exits with 0 at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// What it prints, and how long after its start, in the order of time.
    pub prints: Vec<(Duration, String)>,
    /// How long after its start it exits by itself, and with which code. `None`: never.
    pub exits: Option<(Duration, i32)>,
    /// How long after its first SIGTERM it has ended; it goes on printing until then. `None`: it ignores SIGTERM.
    pub term_takes: Option<Duration>,
    /// How long after SIGKILL it is gone; it prints nothing any more.
    pub kill_takes: Duration,
    /// Processes that it starts at once, by their command lines. They live as they like: its end is not theirs.
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
