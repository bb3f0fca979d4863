//! The program that runs as a keeper (the helper process that contains the process tree of a command), and the limit
//! for a keeper's output file.

use std::ffi::OsString;
use std::path::PathBuf;

/// Maximum size of a detached tree's output file. A development server needs about a day to print this much, and the
/// file cannot fill a disk unnoticed. The keeper reads and drops all later output, so that no process blocks.
pub const DETACHED_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Program that becomes a keeper by calling [`keeper_main`](crate::keeper_main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// An absolute path. `/proc/self/exe` refers to the running program, even after the file on disk was replaced.
    pub executable: PathBuf,
    /// Arguments with which the program runs as a keeper, such as a hidden subcommand.
    pub args: Vec<OsString>,
}
