//! Behaviour of a simulated process, alone and under signals, and the resulting events.

use std::sync::Arc;
use std::time::Duration;

use allstop_process::{ExitInfo, ProcessSignal};
use tokio::time::Instant;

/// Behaviour of a process. The default prints nothing and exits with 0 at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Printed texts, each with its time after the start, in the order of time.
    pub prints: Vec<(Duration, String)>,
    /// Time after its start at which the process exits by itself, with the code; `None` if it never does.
    pub exits: Option<(Duration, i32)>,
    /// Time from the first SIGTERM to the end of the process, which prints until then; `None` if it ignores SIGTERM.
    pub term_takes: Option<Duration>,
    /// Time from SIGKILL to the end of the process, in which it prints nothing.
    pub kill_takes: Duration,
    /// Processes that the process starts at once, by their command lines. They continue after its end.
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
    /// A server: prints this text at once, and runs until it is stopped.
    pub fn server(output: &str) -> Self {
        Self {
            prints: vec![(Duration::ZERO, output.to_owned())],
            exits: None,
            ..Self::default()
        }
    }
}

/// An event of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemEvent {
    /// Time of the event.
    pub at: Instant,
    /// The [`number`](super::TreeView::number) of the tree.
    pub tree: usize,
    /// The tree's command.
    pub command: Arc<str>,
    /// Kind of the event.
    pub kind: SystemEventKind,
}

/// Kinds of events of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEventKind {
    /// The tree was started. The caller has no handle yet.
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
    /// A signal was delivered to all living members.
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
    /// The last member of the tree has ended.
    Emptied,
}
