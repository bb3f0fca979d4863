//! The `allstop` command: the only reader of environment and home, and the only one that exits.

mod args;
mod commands;
mod control;
mod demo;
mod display;
mod host;
mod logging;
mod problem;
mod prompt;
mod run;
mod signals;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use display::Flush;
use host::Host;
use problem::Problem;

/// The first argument of a process that keeps a shell's tree together. Not for people, so not in the help.
const KEEPER_COMMAND: &str = "__keeper";

/// How long the exit waits for a reader of what was printed, where no stop has bounded it: a pager that is slow to start
/// still gets all of it, and one that has stopped reading is not waited for longer than a stop would take.
const OUTPUT_WAIT_MAX: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|first| first == KEEPER_COMMAND) {
        return allstop_scope::process::keeper::main(args.collect::<Vec<OsString>>());
    }
    let cli = Cli::parse();
    let host = match Host::of_process() {
        Ok(host) => host,
        Err(problem) => return last_words(&problem),
    };
    logging::start(host.output.stderr());
    let exit = match dispatch(cli, &host) {
        Ok(exit) => exit,
        Err(problem) => {
            host.tell(&problem);
            problem.exit()
        }
    };
    let flushed = host
        .output
        .flush(exit.output_wait.unwrap_or(OUTPUT_WAIT_MAX));
    // Who closes a pipe has read enough; a disk that is full has lost the answer.
    let code = match flushed.stdout {
        Flush::Closed(kind) if kind != ErrorKind::BrokenPipe => exit.code.max(1),
        _ => exit.code,
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "threads that cannot be forced never delay the exit"
    )]
    std::process::exit(i32::from(code))
}

/// How the process ends.
#[derive(Debug)]
pub(crate) struct Exit {
    code: u8,
    /// How long output may still be waited for, where a stop has bounded that.
    output_wait: Option<Duration>,
}

impl From<u8> for Exit {
    fn from(code: u8) -> Self {
        Self {
            code,
            output_wait: None,
        }
    }
}

fn dispatch(cli: Cli, host: &Host) -> Result<Exit, Problem> {
    match cli.command {
        Command::Run(args) => host.block_on(run::run(*args, host)),
        Command::Demo(args) => host.block_on(demo::demo(args, host)),
        Command::Sessions(args) => host
            .block_on(commands::sessions::sessions(args, host))
            .map(Exit::from),
        Command::Completions(args) => {
            let mut command = Cli::command();
            let script = commands::completions::completions(args.shell, &mut command);
            host.output.stdout().text(script, display::Keep::Must);
            Ok(Exit::from(0))
        }
    }
}

/// Where not even the output can be had.
fn last_words(problem: &Problem) -> ExitCode {
    use std::io::Write as _;
    // A standard error that is closed leaves nobody to tell.
    drop(writeln!(std::io::stderr(), "error: {}", problem.message));
    ExitCode::from(problem.code)
}
