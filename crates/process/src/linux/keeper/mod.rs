//! The keeper: the small process that contains the process tree of a call. A keeper serves one call after another.

pub(in crate::linux) mod call;
mod children;
mod drain;
mod killing;
mod main_loop;
pub(super) mod protocol;
pub(super) mod start_command;

use std::process::ExitCode;

/// Runs a keeper: a small process that starts the commands that its owner sends, one after another. For each command,
/// the keeper waits until the command's process tree is empty. The keeper exits after its owner has closed the socket
/// between them. On systems other than Linux, this function fails at once.
///
/// [`launch`](crate::launch()) must start the program, with that socket as standard input. Call this function on the
/// main thread, before any other thread has been started. The function changes the signal handlers and the subreaper
/// attribute of the process, and does not restore them.
///
/// A program runs as the keeper if it is started with a hidden subcommand. The program must check for this subcommand
/// before any of its other code runs:
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
