//! The program of a keeper, and its limit for output.

use std::ffi::OsString;
use std::path::PathBuf;

/// Maximum size of a detached tree's output file: enough for a day of output of a development server, but too little to
/// fill a disk unnoticed. Later output is read, so that no process blocks, and dropped.
pub const DETACHED_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Program that becomes a keeper by calling [`keeper_main`](crate::keeper_main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// An absolute path. `/proc/self/exe` refers to the running program, even if the file on disk was replaced in the
    /// meantime.
    pub executable: PathBuf,
    /// Arguments that make the program a keeper, such as a hidden subcommand.
    pub args: Vec<OsString>,
}
