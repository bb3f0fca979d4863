//! Specification of a launch: the command, its environment and its level of containment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::containment::TreeLauncher;
use crate::platform::Keepers;

/// Name of an environment variable. Every process of a call's tree inherits the variable, which contains the marker of
/// the call.
pub const MARKER_VARIABLE: &str = "ALLSTOP_CALL";

/// A command to run under containment.
///
/// The command's standard input is `/dev/null`. Its standard output and error share one pipe, so their order is kept.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// Program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Arguments, without the program itself.
    pub args: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Variables that are added to the environment of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Variables that the command does not inherit: keys and other secrets.
    pub env_hidden: Vec<OsString>,
    /// Unique marker that distinguishes the processes of this call from the processes of all other calls.
    pub marker: Arc<str>,
    /// Level of containment of the tree.
    pub containment: ContainmentChoice,
}

/// Choice of a level of containment.
#[derive(Debug, Clone)]
pub enum ContainmentChoice {
    /// A keeper, which is a helper process that contains the process tree: the strongest level. Outside Linux, a
    /// process group replaces the keeper.
    Keeper(Arc<Keepers>),
    /// A process group and a marker. This level requires no helper program, and sets no attribute of this process.
    GroupAndMarker,
    /// The caller's own launcher, such as the simulated system of the test kit.
    Custom(Arc<dyn TreeLauncher>),
}
