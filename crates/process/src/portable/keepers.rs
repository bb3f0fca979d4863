//! Replacement for keepers on other systems than Linux: a command that requests a keeper gets a process group.

use std::io;
use std::sync::Arc;

use crate::containment::{ContainedTree, TreeLauncher};
use crate::keeper_program::KeeperProgram;
use crate::launch_error::LaunchError;
use crate::spec::ProcessSpec;
use crate::status_channel::StatusSender;

use super::group::PortableGroups;

/// Keepers require Linux. Elsewhere, this type launches process groups.
#[derive(Debug)]
pub struct PortableKeepers {
    _program: KeeperProgram,
}

impl PortableKeepers {
    /// Accepts the keeper's program, but never starts it.
    pub fn new(program: KeeperProgram) -> Arc<Self> {
        Arc::new(Self { _program: program })
    }

    /// Like [`PortableKeepers::new`]. No process can be adopted on this system.
    ///
    /// # Errors
    /// Never.
    pub fn with_subreaper(program: KeeperProgram) -> io::Result<Arc<Self>> {
        Ok(Self::new(program))
    }

    /// Does nothing, because a process group has no keeper that checks the deadline.
    ///
    /// # Errors
    /// Never.
    pub fn postpone_deadline(&self, _left: std::time::Duration) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing, because process groups have no limit.
    pub fn limit_commands(&self, _max: usize) {}

    /// Does nothing, because there are no keepers.
    pub fn close(&self) {}
}

impl TreeLauncher for PortableKeepers {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        Arc::new(PortableGroups).launch(spec, status)
    }
}
