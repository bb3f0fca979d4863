//! The `allstop` command: the only reader of environment and home, and the only one that exits.

mod args;
mod chat;
mod commands;
mod control;
mod demo;
mod display;
mod exit;
mod host;
mod logging;
mod problem;
mod prompt;
mod resources;
mod run;
mod shutdown;
mod signals;
mod start;
mod stdin;
mod supervise;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command, SessionsAction};
use display::Keep;
pub(crate) use exit::Exit;
use host::Host;
use problem::Problem;
use signals::InheritedSignals;

/// The first argument of a process that keeps a shell's tree together. Not for people, so not in the help.
const KEEPER_COMMAND: &str = "__keeper";

/// The exit code of a panic, as the language has it.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    outlive_file_limit();
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == KEEPER_COMMAND)
    {
        return allstop_scope::process::keeper::main();
    }
    let signals = InheritedSignals::take();
    let cli = Cli::parse();
    let wants_envelope = cli.command.wants_envelope();
    let exhausted = move || last_words(&resources::exhausted(), wants_envelope);
    exit_when_this_thread_panics(Some(Box::new(exhausted)));
    let host = match resources::check().and_then(|()| Host::of_process(signals)) {
        Ok(host) => host,
        Err(problem) => return ExitCode::from(last_words(&problem, wants_envelope)),
    };
    exit_when_this_thread_panics(None);
    logging::start(host.output.stderr());
    let exit = match dispatch(cli, &host) {
        Ok(exit) => exit,
        Err(problem) => {
            if let Some(envelope) = problem.envelope().filter(|_| wants_envelope) {
                host.output.stdout().json(&envelope, Keep::Last);
            }
            host.tell(&problem);
            problem.exit()
        }
    };
    let code = exit.flush(&host);
    host.keepers.close();
    #[expect(
        clippy::disallowed_methods,
        reason = "threads that cannot be forced never delay the exit"
    )]
    std::process::exit(i32::from(code))
}

/// Makes a write beyond the limit of a file's size fail as one on a full disk does, instead of killing this process
/// before it has said a word. With a handler, and not ignored: what this process starts has the default again.
fn outlive_file_limit() {
    let beyond = rustix::process::Signal::XFSZ.as_raw();
    // Where it cannot be had the process dies of it, as any other.
    drop(signal_hook::flag::register(beyond, Arc::default()));
}

/// Makes a panic of the main thread the end of the process, with a report or with what is said `instead` of one. Unwinding
/// would wait for threads that may never end: those of a runtime that could not start all of them.
fn exit_when_this_thread_panics(instead: Option<Box<dyn Fn() -> u8 + Send + Sync>>) {
    let main = std::thread::current().id();
    // The one that was set before is ours, if there is one.
    drop(std::panic::take_hook());
    let report = std::panic::take_hook();
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

fn dispatch(cli: Cli, host: &Host) -> Result<Exit, Problem> {
    match cli.command {
        Command::Run(args) => host.block_on(run::run(*args, host)),
        Command::Chat(args) => host.block_on(chat::chat(*args, host)),
        Command::Demo(args) => host.block_on(demo::demo(args, host)),
        Command::Sessions(args) => match args.command {
            SessionsAction::Resume(resume) => {
                host.block_on(chat::chat(resume.into_chat(args.store), host))
            }
            SessionsAction::Look(command) => host
                .block_on(commands::sessions::sessions(&args.store, &command, host))
                .map(Exit::from),
        },
        Command::Completions(args) => {
            let mut command = Cli::command();
            let script = commands::completions::completions(args.shell, &mut command);
            host.output.stdout().answer(&script, Keep::Must);
            Ok(Exit::from(0))
        }
    }
}

/// Says where not even the output can be had why nothing runs. The exit code.
fn last_words(problem: &Problem, wants_envelope: bool) -> u8 {
    use std::io::Write as _;
    if let Some(envelope) = problem.envelope().filter(|_| wants_envelope) {
        drop(writeln!(std::io::stdout(), "{envelope}"));
    }
    // A standard error that is closed leaves nobody to tell.
    let mut stderr = std::io::stderr();
    drop(writeln!(stderr, "error: {}", problem.message));
    if let Some(hint) = &problem.hint {
        drop(writeln!(stderr, "hint: {hint}"));
    }
    problem.code
}
