//! Behaviour of a simulated process with and without signals, and the events that result.

use std::sync::Arc;
use std::time::Duration;

use allstop_process::{ExitInfo, ProcessSignal};
use tokio::time::Instant;

/// Behaviour of a process. By default, the process prints nothing and exits immediately with code 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Printed texts in the order of time. Each text has its time after the start of the process.
    pub prints: Vec<(Duration, String)>,
    /// Time after the start at which the process exits by itself, and its exit code; `None` if the process never exits
    /// by itself.
    pub exits: Option<(Duration, i32)>,
    /// Time from the first SIGTERM to the end of the process. The process prints its texts during this time. `None` if
    /// the process ignores SIGTERM.
    pub term_takes: Option<Duration>,
    /// Time from SIGKILL to the end of the process. The process prints nothing during this time.
    pub kill_takes: Duration,
    /// Processes that the process starts immediately, with their command lines. These processes continue after the
    /// process has ended.
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
    /// A server: it prints this text immediately, and runs until it is stopped.
    pub fn server(output: &str) -> Self {
        Self {
            prints: vec![(Duration::ZERO, output.to_owned())],
            exits: None,
            ..Self::default()
        }
    }
}

/// An event of a process tree.
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
    /// The tree was started, but the caller has no handle yet.
    Started {
        /// Pid of the main process.
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
        /// True if the member is the main process.
        is_main: bool,
        /// Exit code or signal.
        exit: ExitInfo,
    },
    /// The last member of the tree has ended.
    Emptied,
}
