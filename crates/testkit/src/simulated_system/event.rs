//! What happens in a simulated system.

use std::fmt;
use std::sync::Arc;

use allstop_scope::process::{ExitInfo, Signal};
use tokio::time::Instant;

/// Something that happened to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemEvent {
    /// When.
    pub at: Instant,
    /// The [`number`](super::TreeView::number) of the tree.
    pub tree: usize,
    /// Its command.
    pub command: Arc<str>,
    /// What happened.
    pub kind: SystemEventKind,
}

/// What happened to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEventKind {
    /// It was started. Whoever asked for it has no handle yet.
    Started {
        /// The main process.
        pid: u32,
    },
    /// A member printed.
    Printed {
        /// Which.
        pid: u32,
        /// What.
        text: String,
    },
    /// A signal was delivered to all members that live.
    Signalled(Signal),
    /// A member ended.
    Ended {
        /// Which.
        pid: u32,
        /// Whether it was the main process.
        is_main: bool,
        /// How.
        exit: ExitInfo,
    },
    /// Nothing of it is left.
    Emptied,
}

impl fmt::Display for SystemEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {} `{}`: ", self.tree, self.command)?;
        match &self.kind {
            SystemEventKind::Started { pid } => write!(f, "started as {pid}"),
            SystemEventKind::Printed { pid, text } => write!(f, "{pid} printed {text:?}"),
            SystemEventKind::Signalled(Signal::Term) => f.write_str("SIGTERM"),
            SystemEventKind::Signalled(Signal::Kill) => f.write_str("SIGKILL"),
            SystemEventKind::Ended { pid, exit, .. } => match exit {
                ExitInfo::Code(code) => write!(f, "{pid} exited with {code}"),
                ExitInfo::Signal(number) => write!(f, "{pid} ended by signal {number}"),
                ExitInfo::Unknown => write!(f, "{pid} ended"),
            },
            SystemEventKind::Emptied => f.write_str("nothing is left"),
        }
    }
}
