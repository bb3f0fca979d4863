//! Behaviour of a simulated process, left alone and under signals, and the events that come of it.

use std::sync::Arc;
use std::time::Duration;

use allstop_process::{ExitInfo, ProcessSignal};
use tokio::time::Instant;

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

/// Something that happened to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemEvent {
    /// Time of the event.
    pub at: Instant,
    /// The [`number`](super::TreeView::number) of the tree.
    pub tree: usize,
    /// Its command.
    pub command: Arc<str>,
    /// Kind of the event.
    pub kind: SystemEventKind,
}

/// Kinds of events of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEventKind {
    /// It was started. The caller has no handle yet.
    Started {
        /// The main process.
        pid: u32,
    },
    /// A member printed.
    Printed {
        /// Pid of the member.
        pid: u32,
        /// Printed text.
        text: String,
    },
    /// A signal was delivered to all members that live.
    Signalled(ProcessSignal),
    /// A member ended.
    Ended {
        /// Pid of the member.
        pid: u32,
        /// True for the main process.
        is_main: bool,
        /// Exit code or signal.
        exit: ExitInfo,
    },
    /// No member of it is left.
    Emptied,
}
