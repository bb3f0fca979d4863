//! Specification of a launch: the command, its environment and its level of containment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::containment::TreeLauncher;
use crate::launch_error::LaunchError;
use crate::platform::Keepers;
#[cfg(target_os = "linux")]
use crate::platform::ReservedKeeper;

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

impl ContainmentChoice {
    /// Waits until another command may start, and reserves its place. The returned value is for one command. Without a
    /// limit (see [`Keepers::limit_commands`]), resolves at once.
    ///
    /// # Errors
    /// If the limit is reached for all of this time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(
            clippy::unused_async,
            unused_variables,
            reason = "process groups have no limit"
        )
    )]
    pub async fn reserved(&self, wait_max: Duration) -> Result<Self, LaunchError> {
        #[cfg(target_os = "linux")]
        if let Self::Keeper(keepers) = self
            && let Some(reserved) = ReservedKeeper::take(keepers, wait_max).await?
        {
            return Ok(Self::Custom(Arc::new(reserved)));
        }
        Ok(self.clone())
    }
}
