//! What to launch, how to contain it, and how a launch can fail.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::keepers::Keepers;
use super::simulated::SimulatedProcesses;

/// The environment variable that carries the marker of a call into every process of its tree.
pub const MARKER_VARIABLE: &str = "ALLSTOP_CALL";

/// A command to run under containment.
///
/// Its standard input is `/dev/null`; its standard output and error are one pipe, so their order is kept.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// The directory it starts in.
    pub cwd: PathBuf,
    /// What is added to the environment that it inherits from this process.
    pub env: Vec<(OsString, OsString)>,
    /// What is not inherited: keys and other secrets.
    pub env_hidden: Vec<OsString>,
    /// What tells this call's processes from those of any other call, ever: make it unique.
    pub marker: Arc<str>,
    /// How the tree is held together.
    pub containment: ContainmentChoice,
}

/// Which level of containment to use.
#[derive(Debug, Clone)]
pub enum ContainmentChoice {
    /// A keeper process: strongest. Outside Linux this falls back to what the platform has.
    Keeper(Arc<Keepers>),
    /// A process group and a marker: needs no helper program, and sets no attribute of this process.
    GroupAndMarker,
    /// No process at all, for tests: this simulation doubles for [`GroupAndMarker`](Self::GroupAndMarker).
    Simulated(Arc<dyn SimulatedProcesses>),
}

/// How to start a keeper: a program that calls [`keeper::main`](super::keeper::main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// An absolute path. `/proc/self/exe` names the running program, even one that was replaced on disk meanwhile.
    pub executable: PathBuf,
    /// What makes that program a keeper, such as a hidden subcommand.
    pub args: Vec<OsString>,
}

/// A command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The program is missing, or is not one.
    #[error("cannot start {program:?}")]
    Program {
        /// As it was given.
        program: OsString,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory to start in is missing, or is not one.
    #[error("cannot start in the directory {}", cwd.display())]
    Directory {
        /// As it was given.
        cwd: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The keeper's own program did not start.
    #[error("cannot start the keeper {}", executable.display())]
    Keeper {
        /// As it was given.
        executable: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The keeper ended before it had reported the start of the command, which may have run.
    #[error("the keeper ended before it reported the start of the command, which may have run")]
    KeeperLost,
    /// A pipe, a socket or a descriptor could not be had.
    #[error("cannot set up the {what} of a process")]
    Setup {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    pub(super) fn setup(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Setup { what, source }
    }
}
