//! The `allstop` command. Only this crate reads the environment and the home folder, and only this crate exits the
//! process.
#![cfg_attr(
    not(feature = "nats"),
    allow(
        dead_code,
        reason = "some functions serve the demo on several nodes alone"
    )
)]

mod args;
mod chat;
mod closed_output;
mod commands;
mod config_edit;
mod control;
#[cfg(feature = "copilot")]
mod copilot;
mod demo;
mod descriptors;
mod display;
mod error;
mod exit;
mod host;
mod image_file;
mod image_names;
mod json_document;
mod logging;
#[cfg(feature = "mcp-server")]
mod mcp_server;
mod offered_models;
mod output_file;
mod pasted_mark;
mod project_trust;
mod questions;
mod resources;
mod run;
mod serve;
mod server_loop;
mod service_manager;
mod shell_command;
mod shell_quote;
mod short_id;
mod shutdown;
mod signals;
mod standard_output;
mod start;
mod start_error;
mod stream_reader;
mod supervise;
mod suspend;
mod tasks;
#[cfg_attr(not(feature = "otlp"), path = "no_telemetry.rs")]
mod telemetry;
mod typed_command;

use std::process::ExitCode;
use std::sync::Arc;

use allstop_terminal::OutputPriority;

use args::{Cli, CliCommand, SessionsAction};
use commands::schema::SchemaName;
use error::CliError;
use exit::Exit;
use host::{KEEPER_COMMAND, ProcessHost};
use signals::InheritedSignals;

fn main() -> ExitCode {
    hide_environment();
    outlive_file_limit();
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == KEEPER_COMMAND)
    {
        if let Some(limit) = std::env::args().nth(2).and_then(|limit| limit.parse().ok()) {
            descriptors::set(limit);
        }
        return allstop_process::keeper_main();
    }
    let signals = InheritedSignals::take();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let form = cli.command.error_form();
    let exhausted = move || start_error::print_start_error(&resources::exhausted(), form);
    start_error::exit_when_this_thread_panics(Some(Box::new(exhausted)));
    let host = match host::change_folder(cli.folder.as_deref())
        .and_then(|()| resources::check())
        .and_then(|()| ProcessHost::of_process(signals, cli.command.output_file()))
        .and_then(|host| host.check(&cli.command))
        .and_then(|host| host.traced(&cli.command))
    {
        Ok(host) => host.quiet(cli.command.is_quiet()),
        Err(problem) => {
            // The receipt of an earlier run must not look like the receipt of this run.
            cli.command
                .receipt_file()
                .into_iter()
                .for_each(run::discard_receipt);
            return ExitCode::from(start_error::print_start_error(&problem, form));
        }
    };
    start_error::exit_when_this_thread_panics(None);
    logging::start(host.output.stderr(), host.traces.as_ref());
    let exit = match dispatch(cli, &host) {
        Ok(exit) => exit,
        Err(problem) => {
            if let Some(json) = problem.json(form) {
                host.output.stdout().json(&json, OutputPriority::Last);
            }
            host.print_problem(&problem);
            problem.into()
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

/// Hides the environment of this process from the commands that it runs. The commands run as the same user and could
/// otherwise read the secrets in `/proc/PID/environ`. After this call, that file belongs to root. The disadvantages:
/// this process writes no core dumps, and debuggers of the same user cannot attach to it. The setting ends when a
/// process executes a program. Keeper processes execute this program again, so they also call this function.
fn hide_environment() {
    // A failure is ignored: the environment that commands inherit contains no secrets in any case.
    #[cfg(target_os = "linux")]
    let _refused =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Makes a write beyond the file size limit fail like a write to a full disk. By default, such a write kills the
/// process without a message. The signal has a handler and is not ignored, so child processes get the default behavior
/// again.
fn outlive_file_limit() {
    let beyond = rustix::process::Signal::XFSZ.as_raw();
    // If the handler cannot be installed, SIGXFSZ kills the process as usual.
    drop(signal_hook::flag::register(beyond, Arc::default()));
}

fn dispatch(cli: Cli, host: &ProcessHost) -> Result<Exit, CliError> {
    match cli.command {
        CliCommand::Run(args) => host.block_on(run::run(*args, host)),
        CliCommand::Chat(args) if args.or_init => {
            host.block_on(commands::bare::chat_or_init(*args, host))
        }
        CliCommand::Chat(args) => host.block_on(chat::chat(*args, host)),
        CliCommand::Ps(args) => host.block_on(commands::ps::ps(&args, host)).map(Exit::from),
        CliCommand::Stop(args) => host
            .block_on(commands::stop::stop(&args, host))
            .map(Exit::from),
        CliCommand::Watch(args) => host
            .block_on(commands::watch::watch(&args, host))
            .map(Exit::from),
        CliCommand::Receipt(args) => host
            .block_on(commands::receipt::receipt(&args, host))
            .map(Exit::from),
        CliCommand::Serve(args) => host.block_on(serve::serve(*args, host)),
        #[cfg(feature = "nats")]
        CliCommand::Worker(args) => host.block_on(serve::work(*args, host)),
        #[cfg(feature = "nats")]
        CliCommand::Workers(args) => host
            .block_on(commands::workers::workers(&args, host))
            .map(Exit::from),
        #[cfg(feature = "copilot")]
        CliCommand::Copilot(args) => host.block_on(copilot::copilot(*args, host)),
        CliCommand::Tasks(args) => host.block_on(tasks::tasks(args, host)),
        CliCommand::Demo(args) => host.block_on(demo::demo(args, host)),
        CliCommand::Sessions(args) => match args.command {
            SessionsAction::Resume(resume) => {
                host.block_on(chat::chat(resume.into_chat(args.store), host))
            }
            SessionsAction::Look(command) => host
                .block_on(commands::sessions::sessions(&args.store, &command, host))
                .map(Exit::from),
        },
        CliCommand::Store(args) => host
            .block_on(commands::store::store(&args, host))
            .map(Exit::from),
        CliCommand::Config(args) => commands::config::config(&args, host).map(Exit::from),
        CliCommand::Doctor(args) => host
            .block_on(commands::doctor::doctor(&args, host))
            .map(Exit::from),
        CliCommand::Init(args) => host.block_on(commands::init::init(&args, host)),
        CliCommand::Mcp(args) => host.block_on(commands::mcp::mcp(*args, host)),
        CliCommand::Schema(args) => {
            let stdout = host.output.stdout();
            match args.name {
                Some(name) => stdout.answer(name.text(), OutputPriority::Required),
                None => stdout.lines(SchemaName::list(), OutputPriority::Required),
            };
            Ok(Exit::from(0))
        }
        CliCommand::Man(args) => commands::man::man(&args, host).map(Exit::from),
        CliCommand::Completions(args) => {
            let text = match args.shell {
                Some(shell) => commands::completions::completions(shell, &mut args::command()),
                None => {
                    host.block_on(commands::sessions::session_completions(&args.store, host))?
                }
            };
            host.output.stdout().answer(&text, OutputPriority::Required);
            Ok(Exit::from(0))
        }
    }
}
