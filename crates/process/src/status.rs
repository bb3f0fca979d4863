//! Status of a process tree, published by its driver and read by all other code.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{EndMethod, EndProof};
use tokio::time::Instant;

use crate::launch_error::LaunchError;

/// End of the main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitInfo {
    /// The process returned this code.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
    /// The process has ended, but its keeper was killed before it could report the exit status.
    Unknown,
}

impl ExitInfo {
    pub(crate) fn new(code: Option<i32>, signal: Option<i32>) -> Self {
        match (code, signal) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// True if the process returned 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// Reason why the processes of a tree must be searched, because the report of the keeper (the helper process that
/// contains the tree) is not sufficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchReason {
    /// An earlier process left the tree running, and its keeper was killed.
    KeeperGone,
    /// A process of the tree has entered another PID namespace.
    Entered,
    /// Processes with the tree's marker in their environment were found outside of the tree, and were killed.
    Strays,
}

impl SearchReason {
    fn note(self) -> &'static str {
        match self {
            Self::KeeperGone => {
                "its keeper was killed earlier: the search misses processes that left their group and cleared their environment"
            }
            Self::Entered => {
                "one of its processes entered another PID namespace: the search misses children there that cleared their environment"
            }
            Self::Strays => {
                "some of its processes ran outside its tree: they were found by their environment, and killed"
            }
        }
    }
}

/// Facts that the driver has observed so far. Facts are only added: a field that is set never changes.
#[derive(Debug, Clone, Default)]
pub struct ProcessStatus {
    /// The main process, once it has started.
    pub main: Option<ProcessIdentity>,
    /// End of the main process.
    pub exited: Option<ExitInfo>,
    /// Proof that no process of the tree is left.
    pub empty: Option<EndProof>,
    /// Time of the proof.
    pub empty_at: Option<Instant>,
    /// Reason why the command never started.
    pub failed: Option<Arc<LaunchError>>,
    /// True if the keeper was killed. The driver then ends the remaining processes without the keeper.
    pub keeper_lost: bool,
    /// True if the deadline of this process passed, for example because the process was paused. The keeper has then killed
    /// the tree, perhaps before a stop.
    pub expired: bool,
    /// Reason why the keeper's report is not sufficient. The proof of the end is then a search.
    pub searched: Option<SearchReason>,
    /// True after [`detach`](super::ProcessHandle::detach): the tree is no longer watched.
    pub detached: bool,
}

impl ProcessStatus {
    /// Strongest signal with which a stop ended the tree. `strongest` is the strongest signal that was requested;
    /// without a request, the result is `None`. If the keeper was killed, or if processes were found outside the tree,
    /// the signal is SIGKILL. The signal is also SIGKILL after the deadline, with which the keeper kills the tree.
    pub fn ended_by(&self, strongest: Option<EndMethod>) -> Option<EndMethod> {
        if self.expired {
            return Some(EndMethod::Sigkill);
        }
        match strongest {
            Some(_) if self.keeper_lost || self.searched == Some(SearchReason::Strays) => {
                Some(EndMethod::Sigkill)
            }
            strongest => strongest,
        }
    }

    /// Note on a tree whose keeper was killed, for receipts, models and people.
    pub fn keeper_lost_note(&self) -> Option<&'static str> {
        self.keeper_lost.then_some(match self.empty {
            Some(EndProof::ProcessTreeEmpty) => {
                "its keeper was killed: Allstop took over all processes of the tree, and killed them"
            }
            _ => {
                "its keeper was killed, so containment was lost: all processes that could still be found were killed"
            }
        })
    }

    /// Note on the proof of the end, if this proof is weaker than the keeper's report.
    pub fn evidence_note(&self) -> Option<&'static str> {
        let expired =
            "its keeper killed it at the deadline of this process, perhaps before the stop";
        self.keeper_lost_note()
            .or(self.searched.map(SearchReason::note))
            .or(self.expired.then_some(expired))
    }

    pub(crate) fn set_empty(&mut self, verified: EndProof) {
        self.empty = Some(verified);
        self.empty_at = Some(Instant::now());
    }
}

/// Reason why a wait ended without a result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessWaitError {
    /// The command never started.
    #[error("the process never started")]
    NeverStarted(#[source] Arc<LaunchError>),
    /// The tree was detached and is no longer watched.
    #[error("the process was detached")]
    Detached,
    /// The driver was dropped. The tree was killed, or its keeper kills it.
    #[error("the driver of the process was dropped")]
    WatcherGone,
}

/// A signal that ends processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGTERM: asks a process to end.
    Term,
    /// SIGKILL: forces a process to end.
    Kill,
}

impl From<ProcessSignal> for rustix::process::Signal {
    fn from(signal: ProcessSignal) -> Self {
        match signal {
            ProcessSignal::Term => Self::TERM,
            ProcessSignal::Kill => Self::KILL,
        }
    }
}

/// Result of a search for processes by the marker in their environment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct MarkedSearch {
    /// The found processes.
    pub processes: Vec<MarkedProcess>,
    /// False if some processes could not be listed. Then other processes with a marker may run.
    pub is_complete: bool,
}

/// A living process with a marker in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedProcess {
    /// The marker: a unique value for each call (launched command).
    pub marker: Arc<str>,
    /// The process.
    pub member: TreeMember,
    /// The nearest ancestor without this marker. This is the keeper of the call while the keeper runs. `None` if the
    /// ancestor has ended or is invisible from here.
    pub parent: Option<ProcessIdentity>,
}

/// A living process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeMember {
    /// Identity of the process.
    pub identity: ProcessIdentity,
    /// Command line, with arguments separated by spaces. The process's name in brackets if it has no arguments.
    pub command_line: String,
}
