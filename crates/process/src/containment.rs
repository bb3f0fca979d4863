//! Containment: the way to reach a process tree, and the seam by which a new level of it is added.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::driver::ProcessDriver;
use crate::launch_error::LaunchError;
use crate::output::OutputSource;
use crate::spec::ProcessSpec;
use crate::status::TreeMember;
use crate::status_channel::StatusSender;

/// Reaches the processes of one tree, without waiting. Each level of containment implements it.
pub trait TreeContainment: Send + Sync {
    /// Level that receipts name.
    fn level(&self) -> Containment;

    /// Keeper of the tree, if it has one.
    fn keeper(&self) -> Option<&ProcessIdentity> {
        None
    }

    /// Sends SIGTERM to every member.
    fn ask(&self);

    /// Sends SIGKILL to every member; the driver repeats it until no member is left.
    fn force(&self);

    /// Living members now, without the keeper. Real processes are looked at on a thread of their own.
    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>>;

    /// Members as they were last seen. Does not look at the system.
    fn known_members(&self) -> Vec<ProcessIdentity>;

    /// Lets the tree outlive this process, with its further output appended to a file.
    ///
    /// # Cancel safety
    /// Once the driver has taken the request it is carried out, whether or not anyone waits for the answer.
    fn detach(&self, _output_file: &Path) -> BoxFuture<'static, Result<(), DetachTreeError>> {
        std::future::ready(Err(DetachTreeError::NeedsKeeper)).boxed()
    }
}

/// Starts trees at one level of containment: the keepers, process groups, or a simulation in tests.
pub trait TreeLauncher: fmt::Debug + Send + Sync {
    /// Starts the command. Must not block.
    ///
    /// # Errors
    /// If it is known already that the command does not run.
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError>;
}

/// A tree that was just started, as its launcher hands it out.
pub struct ContainedTree {
    /// Reaches its processes.
    pub containment: Arc<dyn TreeContainment>,
    /// Watches it and publishes its status. Dropping it kills the tree.
    pub driver: ProcessDriver,
    /// Combined output of its processes.
    pub output: Box<dyn OutputSource>,
}

impl fmt::Debug for ContainedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainedTree")
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

/// Refusal to detach a tree; it is contained as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachTreeError {
    /// Only a keeper can outlive its owner.
    #[error("only a process with a keeper can be detached")]
    NeedsKeeper,
    /// The file for its further output could not be opened.
    #[error("cannot write further output to {}", output_file.display())]
    OutputFile {
        /// Path of the file.
        output_file: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The tree had ended, or its driver was dropped.
    #[error("the process is not running")]
    NotRunning,
}
