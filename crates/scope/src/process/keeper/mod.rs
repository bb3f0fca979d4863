//! The keeper: the small process that holds a call's process tree together, one call after another.
//!
//! A program offers it as a hidden subcommand, decided before anything else of the program starts:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use allstop_scope::process::keeper;
//!
//! fn main() -> ExitCode {
//!     if std::env::args_os().nth(1).is_some_and(|first| first == "keep-call") {
//!         return keeper::main();
//!     }
//!     // … the program itself …
//!     ExitCode::SUCCESS
//! }
//! ```

#[cfg(target_os = "linux")]
mod call;
#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod drain;
#[cfg(target_os = "linux")]
mod killing;
#[cfg(target_os = "linux")]
pub(super) mod order;
#[cfg(target_os = "linux")]
pub(super) mod protocol;
#[cfg(target_os = "linux")]
mod watch;

use std::process::ExitCode;

/// How much a detached tree may print into its file: enough to see what a development server did for a day, not enough
/// to fill a disk unwatched. What comes after is read, so that nobody blocks, and dropped.
pub const DETACHED_OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Runs a keeper: starts the commands that its owner sends, one after another, and keeps each until its tree is empty.
/// Ends when its owner has closed their socket.
///
/// It expects to be started by [`launch`](super::launch), with that socket as standard input. Call it on the main thread,
/// before any other has been started: it leaves the process's signals and its subreaper attribute changed.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        watch::run()
    }
    #[cfg(not(target_os = "linux"))]
    {
        ExitCode::FAILURE
    }
}
