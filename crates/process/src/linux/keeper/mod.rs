//! The keeper: the small process that contains the process tree of a call, and serves one call after another.

pub(in crate::linux) mod call;
mod children;
mod drain;
mod killing;
mod main_loop;
pub(super) mod protocol;
pub(super) mod start_command;

use std::process::ExitCode;

/// Runs a keeper: the small process that starts the commands that its owner sends, one after another, and keeps each
/// command until its process tree is empty. Ends after its owner has closed their socket. On systems other than Linux,
/// fails at once.
///
/// [`launch`](crate::launch()) must start the program, with that socket as standard input. Call this function on the
/// main thread, before any other thread has been started. The function leaves the process's signals and its subreaper
/// attribute changed.
///
/// A program provides the keeper as a hidden subcommand, which it checks before any of its other code starts:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if std::env::args_os().nth(1).is_some_and(|first| first == "keep-call") {
///         return allstop_process::keeper_main();
///     }
///     // … the program itself …
///     ExitCode::SUCCESS
/// }
/// ```
pub fn keeper_main() -> ExitCode {
    main_loop::run()
}
