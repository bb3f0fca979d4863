//! Words that the output threads cannot say: help and wrong usage before there are any, a start for which there is no
//! room, and panics. As everywhere, nothing that others wrote drives the terminal.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use allstop_terminal::{escape, restore_held_terminal};
use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use crate::args::Cli;
use crate::error::CliError;

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
        if let Some(hint) = hint(error.kind(), &args) {
            say(&format!("\nhint: {}\n", escape::text(&hint)));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(PANICKED))
    })
}

/// Adds the subcommand that is left out.
///
/// The Copilot SDKs start the binary that `COPILOT_CLI_PATH` names without a subcommand. A first argument of several words
/// is a prompt: no subcommand has a space in it. A single word is never a prompt, because a mistyped subcommand would be sent to
/// a model.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_of_sdk = args.iter().any(|arg| arg == "--headless");
    let first = args.get(1).map(|first| first.as_bytes());
    if is_of_sdk && first.is_some_and(|first| first != b"copilot") {
        args.insert(1, "copilot".into());
    } else if first.is_some_and(is_prompt) {
        args.insert(1, "run".into());
    }
    args
}

fn is_prompt(argument: &[u8]) -> bool {
    !argument.starts_with(b"-") && argument.iter().any(u8::is_ascii_whitespace)
}

/// Advice on a first argument that is no subcommand.
fn hint(kind: ErrorKind, args: &[OsString]) -> Option<String> {
    let (_, given) = args.split_first()?;
    let given: Vec<_> = given.iter().map(|word| word.to_string_lossy()).collect();
    let first = given.first()?;
    match kind {
        ErrorKind::InvalidSubcommand if Cli::command().find_subcommand(&**first).is_none() => {
            Some("a prompt follows `run`, or is in quotes: allstop run fix the tests, allstop \"fix the tests\"".to_owned())
        }
        ErrorKind::UnknownArgument if first.starts_with('-') => {
            Some("flags follow the command: allstop run --yes \"fix the tests\"".to_owned())
        }
        _ => None,
    }
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
        if is_main {
            // Nothing is dropped on this way out.
            restore_held_terminal();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<OsString> {
        let all = ["allstop"].iter().chain(line);
        all.map(OsString::from).collect()
    }

    #[test]
    fn first_argument_of_several_words_is_a_prompt() {
        for (given, read) in [
            (&["fix it"][..], &["run", "fix it"][..]),
            (&["fix it", "--yes"], &["run", "fix it", "--yes"]),
            (&["fix"], &["fix"]),
            (&["sesions", "list"], &["sesions", "list"]),
            (&["run", "fix it"], &["run", "fix it"]),
            (&["-x y"], &["-x y"]),
            (&["--headless", "a b"], &["copilot", "--headless", "a b"]),
            (&[], &[]),
        ] {
            assert_eq!(arguments(words(given)), words(read), "{given:?}");
        }
    }

    #[test]
    fn wrong_first_word_gets_a_hint() {
        for (line, has_hint) in [
            (&["fix", "the", "tests"][..], true),
            (&["--yes", "fix it"], true),
            (&["sessions", "lst"], false),
            (&["run", "--nonsense", "x"], false),
            (&["--help"], false),
        ] {
            let args = words(line);
            let error = Cli::try_parse_from(&args).unwrap_err();
            assert_eq!(hint(error.kind(), &args).is_some(), has_hint, "{line:?}");
        }
    }
}
