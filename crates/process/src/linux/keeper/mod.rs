//! The keeper: the small process that holds a call's process tree together, one call after another.

pub(in crate::linux) mod call;
mod children;
mod drain;
mod killing;
mod main_loop;
pub(super) mod order;
pub(super) mod protocol;

use std::process::ExitCode;

/// Runs a keeper: the small process that starts the commands that its owner sends, one after another, and keeps each
/// until its tree is empty. Ends when its owner has closed their socket. Elsewhere than on Linux it fails at once.
///
/// It expects to be started by [`launch`](crate::launch()), with that socket as standard input. Call it on the main
/// thread, before any other has been started: it leaves the process's signals and its subreaper attribute changed.
///
/// A program offers it as a hidden subcommand, decided before anything else of the program starts:
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
