//! Messages that the output threads cannot print: a start without room for them, and panics. As everywhere, text from
//! outside cannot drive the terminal.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::PanicHookInfo;

use allstop_terminal::{escape, restore_held_terminal};

use crate::error::CliError;

/// The exit code of a panic, as the language has it.
const PANICKED: u8 = 101;

/// Prints why nothing runs where not even the output can be had. Returns the exit code.
pub(crate) fn print_start_error(problem: &CliError, wants_envelope: bool) -> u8 {
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

/// Writes to standard error, if it is open.
pub(crate) fn say(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
