//! Keepers where there are none: what asks for one gets what the platform has.

use std::io;
use std::sync::Arc;

use super::spec::KeeperProgram;

/// Keepers need Linux. Elsewhere this is a process group.
#[derive(Debug)]
pub struct Keepers {
    _program: KeeperProgram,
}

impl Keepers {
    /// Keepers of this program.
    pub fn new(program: KeeperProgram) -> Arc<Self> {
        Arc::new(Self { _program: program })
    }

    /// The same: nothing can be adopted here.
    ///
    /// # Errors
    /// Never.
    pub fn adopting_orphans(program: KeeperProgram) -> io::Result<Arc<Self>> {
        Ok(Self::new(program))
    }

    /// Ends nothing.
    pub fn close(&self) {}
}
