//! Words that the output threads cannot say: help and wrong usage before there are any, a start for which there is no
//! room, and panics. As everywhere, nothing that others wrote drives the terminal.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::{CommandFactory as _, Parser as _};

use crate::args::Cli;
use crate::error::CliError;
use crate::terminal::escape;

/// The exit code of a panic, as the language has it.
const PANICKED: u8 = 101;

/// Reads the command line, or says what is wrong with it.
///
/// # Errors
/// The exit code: that of wrong usage, or of help and version.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let args = arguments(std::env::args_os().collect());
    Cli::try_parse_from(&args).map_err(|error| {
        // Once more without styles: all that is special in there has been written by others.
        let command = Cli::command().styles(Styles::plain());
        let again = command.try_get_matches_from(&args);
        let plain = again.err().map(|error| error.render().ansi().to_string());
        let safe = plain.as_deref().map(escape::text);
        // Whoever has closed the stream reads nothing.
        match (&plain, safe) {
            (Some(plain), Some(safe)) if *plain != safe && error.use_stderr() => say(&safe),
            (Some(plain), Some(safe)) if *plain != safe => {
                drop(write!(std::io::stdout(), "{safe}"));
            }
            _ => drop(error.print()),
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(PANICKED))
    })
}

/// The Copilot SDKs start the binary that `COPILOT_CLI_PATH` names without a subcommand.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_of_sdk = args.iter().any(|arg| arg == "--headless");
    if is_of_sdk && args.get(1).is_some_and(|first| first != "copilot") {
        args.insert(1, "copilot".into());
    }
    args
}

/// Says where not even the output can be had why nothing runs. The exit code.
pub(crate) fn of_start(problem: &CliError, wants_envelope: bool) -> u8 {
    if let Some(envelope) = problem.envelope().filter(|_| wants_envelope) {
        drop(writeln!(std::io::stdout(), "{}", escape::json(&envelope)));
    }
    let hint = problem.hint.as_ref();
    let hint = hint.map_or(String::new(), |hint| format!("hint: {hint}\n"));
    let said = format!("error: {}\n{hint}", problem.message);
    say(&escape::text(&said));
    problem.code
}

/// Makes a panic of the main thread the end of the process, with a report or with what is said `instead` of one. Unwinding
/// would wait for threads that may never end: those of a runtime that could not start all of them.
pub(crate) fn exit_when_this_thread_panics(instead: Option<Box<dyn Fn() -> u8 + Send + Sync>>) {
    let main = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        let is_main = std::thread::current().id() == main;
        let code = match &instead {
            Some(instead) if is_main => instead(),
            _ => {
                report(panic);
                PANICKED
            }
        };
        if is_main {
            #[expect(
                clippy::exit,
                clippy::disallowed_methods,
                reason = "nothing can be asked to end any more"
            )]
            std::process::exit(i32::from(code));
        }
    }));
}

/// The report of the language, escaped: a panic often quotes the text that it fell over.
fn report(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    let trace = match backtrace.status() {
        BacktraceStatus::Captured => format!("stack backtrace:\n{backtrace}\n"),
        _ => String::new(),
    };
    say(&escape::text(&format!("thread '{name}' {panic}\n{trace}")));
}

/// Writes to standard error. One that is closed leaves nobody to tell.
fn say(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
