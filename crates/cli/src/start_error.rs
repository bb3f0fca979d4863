//! Prints the messages that the output threads cannot print: panics, and the error if the resources for these threads
//! are missing at the start. Untrusted text is escaped, so it cannot control the terminal.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::PanicHookInfo;

use allstop_terminal::{escape, restore_held_terminal};

use crate::error::{CliError, ErrorForm};

/// Exit code of a panic, as defined by Rust.
const PANICKED: u8 = 101;

/// Prints the error of a start that failed before the output threads existed. Returns the exit code.
pub(crate) fn print_start_error(problem: &CliError, form: ErrorForm) -> u8 {
    if let Some(json) = problem.json(form) {
        print_json(&json);
    }
    let hint = problem.hint.as_ref();
    let hint = hint.map_or(String::new(), |hint| format!("hint: {hint}\n"));
    let said = format!("error: {}\n{hint}", problem.message);
    write_stderr(&escape::text(&said));
    problem.code()
}

/// Prints a line of JSON to standard output, if it is open.
pub(crate) fn print_json(json: &str) {
    drop(writeln!(std::io::stdout(), "{}", escape::json(json)));
}

/// Makes the process exit when the calling thread panics. The caller must be the main thread. The panic calls `instead`
/// if it is set, and otherwise prints a panic report. Panics of other threads only print a report. The process exits
/// without unwinding, because unwinding would wait for threads that may never end, such as those of a partly started
/// runtime.
pub(crate) fn exit_when_this_thread_panics(instead: Option<Box<dyn Fn() -> u8 + Send + Sync>>) {
    let main = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        let is_main = std::thread::current().id() == main;
        if is_main {
            // This exit runs no destructors, so the terminal is restored here.
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

/// Prints Rust's panic report, escaped, because a panic message often quotes untrusted input.
fn report(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    let trace = match backtrace.status() {
        BacktraceStatus::Captured => format!("stack backtrace:\n{backtrace}\n"),
        _ => String::new(),
    };
    write_stderr(&escape::text(&format!("thread '{name}' {panic}\n{trace}")));
}

/// Writes to standard error, if it is open.
pub(crate) fn write_stderr(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
