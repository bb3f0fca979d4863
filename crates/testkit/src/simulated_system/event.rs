//! Events of a simulated system.

use std::fmt;
use std::sync::Arc;

use allstop_process::{ExitInfo, ProcessSignal};
use tokio::time::Instant;

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

impl fmt::Display for SystemEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {} `{}`: ", self.tree, self.command)?;
        match &self.kind {
            SystemEventKind::Started { pid } => write!(f, "started as {pid}"),
            SystemEventKind::Printed { pid, text } => write!(f, "{pid} printed {text:?}"),
            SystemEventKind::Signalled(ProcessSignal::Term) => f.write_str("SIGTERM"),
            SystemEventKind::Signalled(ProcessSignal::Kill) => f.write_str("SIGKILL"),
            SystemEventKind::Ended { pid, exit, .. } => match exit {
                ExitInfo::Code(code) => write!(f, "{pid} exited with {code}"),
                ExitInfo::Signal(number) => write!(f, "{pid} ended by signal {number}"),
                ExitInfo::Unknown => write!(f, "{pid} ended"),
            },
            SystemEventKind::Emptied => f.write_str("nothing is left"),
        }
    }
}
