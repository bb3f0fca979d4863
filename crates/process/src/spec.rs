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
#[non_exhaustive]
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

impl ProcessSpec {
    /// Creates the specification of a program without arguments. The program runs in the working directory and with the
    /// environment of this process, and with the containment of the scope that starts it. `marker` must differ from the
    /// markers of all other calls.
    pub fn new(program: impl Into<OsString>, marker: impl Into<Arc<str>>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: PathBuf::from("."),
            env: Vec::new(),
            env_hidden: Vec::new(),
            marker: marker.into(),
            containment: ContainmentChoice::Inherit,
        }
    }

    /// Sets the arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Adds variables to the environment.
    #[must_use]
    pub fn envs(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.env
            .extend(variables.map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Sets the variables that the command does not inherit.
    #[must_use]
    pub fn env_hidden(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.env_hidden = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the level of containment.
    #[must_use]
    pub fn containment(mut self, containment: ContainmentChoice) -> Self {
        self.containment = containment;
        self
    }
}

/// Choice of a level of containment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ContainmentChoice {
    /// The level of the scope that starts the process. Without a scope, or if the scope has this level itself, a process group
    /// and a marker.
    #[default]
    Inherit,
    /// A keeper, which is a helper process that contains the process tree: the strongest level. Outside Linux, a
    /// process group replaces the keeper.
    Keeper(Arc<Keepers>),
    /// A process group and a marker. This level requires no helper program, and sets no attribute of this process.
    GroupAndMarker,
    /// The caller's own launcher, such as the simulated system of the test kit.
    Custom(Arc<dyn TreeLauncher>),
}
