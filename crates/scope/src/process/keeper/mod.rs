//! The keeper: the small process that holds one call's process tree together.
//!
//! A program offers it as a hidden subcommand, decided before anything else of the program starts:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use allstop_scope::process::keeper;
//!
//! fn main() -> ExitCode {
//!     let mut args = std::env::args_os().skip(1);
//!     if args.next().is_some_and(|first| first == "keep-call") {
//!         return keeper::main(args);
//!     }
//!     // … the program itself …
//!     ExitCode::SUCCESS
//! }
//! ```

#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod drain;
#[cfg(target_os = "linux")]
mod killing;
#[cfg(target_os = "linux")]
pub(super) mod protocol;
#[cfg(target_os = "linux")]
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

/// How much a detached tree may print into its file: enough to see what a development server did for a day, not enough
/// to fill a disk unwatched. What comes after is read, so that nobody blocks, and dropped.
pub const DETACHED_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Runs a keeper: starts `program args…`, the command that `args` is, and stays until its tree is empty.
///
/// It expects to be started by [`launch`](super::launch): with a socket to its owner as standard input and the pipe of
/// the output as standard output. Call it on the main thread, before any other has been started: it leaves the process's
/// signals and its subreaper attribute changed.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        watch::run(args.into_iter().collect())
    }
    #[cfg(not(target_os = "linux"))]
    {
        drop(args);
        ExitCode::FAILURE
    }
}
