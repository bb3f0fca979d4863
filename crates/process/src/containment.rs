//! Containment: the means to signal a process tree and to prove that it has ended. This file defines the interface that
//! each level of containment implements.

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

/// Access to the processes of one tree, without waiting. Each level of containment implements this trait.
pub trait TreeContainment: Send + Sync {
    /// Level of containment, as named in receipts.
    fn level(&self) -> Containment;

    /// Keeper of the tree: the helper process that started the command. `None` if the tree has no keeper.
    fn keeper(&self) -> Option<&ProcessIdentity> {
        None
    }

    /// Sends SIGTERM to every member (process) of the tree.
    fn ask(&self);

    /// Sends SIGKILL to every member. The driver repeats this until no member is left.
    fn force(&self);

    /// The members that are alive now, without the keeper. For real processes, a separate thread reads `/proc`.
    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>>;

    /// The members that the last search found. Does not query the system.
    fn known_members(&self) -> Vec<ProcessIdentity>;

    /// Detaches the tree, so that the tree outlives this process. Further output of the tree is appended to a file.
    ///
    /// # Cancel safety
    /// Once the driver has received the request, the request is carried out, even if the future is dropped.
    fn detach(&self, _output_file: &Path) -> BoxFuture<'static, Result<(), DetachTreeError>> {
        std::future::ready(Err(DetachTreeError::NeedsKeeper)).boxed()
    }
}

/// Starts trees at one level of containment. Implemented by the keepers, by process groups, and by a simulation in
/// tests.
pub trait TreeLauncher: fmt::Debug + Send + Sync {
    /// Starts the command. Must not block.
    ///
    /// # Errors
    /// If the launcher already knows that the command cannot run.
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError>;
}

/// A newly started tree, as returned by its launcher.
pub struct ContainedTree {
    /// Access to the processes of the tree.
    pub containment: Arc<dyn TreeContainment>,
    /// Watches the tree and publishes its status. Dropping the driver kills the tree.
    pub driver: ProcessDriver,
    /// Combined output of the processes.
    pub output: Box<dyn OutputSource>,
}

impl fmt::Debug for ContainedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainedTree")
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

/// Reason why a tree was not detached. The containment of the tree has not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachTreeError {
    /// The tree has no keeper. Only a keeper can outlive its owner, the process that launched the command.
    #[error("only a process with a keeper can be detached")]
    NeedsKeeper,
    /// The file for the further output could not be opened.
    #[error("cannot write further output to {}", output_file.display())]
    OutputFile {
        /// Path of the file.
        output_file: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The tree has ended, or its driver was dropped.
    #[error("the process is not running")]
    NotRunning,
}
