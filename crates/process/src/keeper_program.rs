//! The program of a keeper, and the bound that it keeps.

use std::ffi::OsString;
use std::path::PathBuf;

/// Bound of a detached tree's output file: enough to see the output of a development server for a day, not enough to
/// fill a disk unwatched. Later output is read, so that no process blocks, and dropped.
pub const DETACHED_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Program that becomes a keeper: it calls [`keeper_main`](crate::keeper_main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// An absolute path. `/proc/self/exe` names the running program, even one that was replaced on disk meanwhile.
    pub executable: PathBuf,
    /// Arguments that make the program a keeper, such as a hidden subcommand.
    pub args: Vec<OsString>,
}
