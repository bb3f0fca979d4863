//! `allstop run`: a client of one session. The command opens the session, sends the prompts, ends the remaining work,
//! and prints the result.

mod end;
mod inputs;
mod no_terminal_prompter;
mod output_schema;
mod questions;
mod receipt_file;
mod stdin;
mod turns;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::StopReason;
use allstop_runtime::{Envelope, OpenSession, QuestionRecipient, SessionCost};
use allstop_scope::WorkCx;
use allstop_terminal::QuestionPrompt;
use allstop_tools::Prompter;
use allstop_tools::permission::FixedAnswer;

use crate::args::{PermissionArgs, RunArgs};
use crate::control::Control;
use crate::display::{
    describe_effects, describe_instructions, describe_interrupted, found_in_run, to_stop,
};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::start::{self, NamedSession, Opened, Opening, StartFailure};
use crate::stream_reader::StreamReader;
use crate::supervise::Supervisor;
use crate::suspend::job_control;
use allstop_remote::TerminalSession;
use no_terminal_prompter::NoTerminalPrompter;
use questions::RunQuestions;
use receipt_file::ReceiptFile;
pub(crate) use receipt_file::discard_receipt;
use turns::RunTurns;
use view::RunView;

/// Exit code of a completed run with denied calls, under `--fail-on-denied`.
const DENIED: u8 = 8;

/// Runs the command.
pub(crate) async fn run(args: RunArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    // Handle signals before all other work. From this line on, a signal ends the run with an envelope: a JSON object
    // with the result.
    let signals = host.signals()?;
    let mut control = Control::new(args.limits.grace.or_default());
    control.set_timeout(host.started, args.limits.timeout.map(Duration::from));
    let mut supervisor = Supervisor::new(signals, control);
    let no_terminal = NoTerminalPrompter::default();
    let mut view = RunView::new(host, &args, no_terminal.clone());
    let fails_on_denied = args.fail_on_denied;

    let envelope = match drive(args, host, no_terminal, &mut supervisor, &mut view).await {
        Ok(envelope) => envelope,
        Err(StartFailure::Ended(envelope)) => *envelope,
        Err(StartFailure::Usage(problem)) => return Err(problem),
    };
    let mut code = match envelope.stop_reason {
        StopReason::Completed if fails_on_denied && !envelope.denials.is_empty() => DENIED,
        // The last turn was committed. A stop that came after the commit found no work, so it does not change the exit
        // code.
        StopReason::Completed => envelope.exit_code,
        reason => supervisor.control.exit_code(reason),
    };
    if let (Some(file), Some(receipt)) = (view.receipt_file.take(), &envelope.receipt) {
        let (receipt, is_stored) = (Arc::clone(receipt), view.is_receipt_stored);
        let saved = file.save(receipt, is_stored, host, &mut supervisor).await;
        if let Err(problem) = saved {
            host.print_problem(&problem);
            code = code.max(problem.code());
        }
    }
    let control = &supervisor.control;
    view.end(&envelope.with_exit_code(code));
    Ok(Exit {
        code,
        output_wait: control.output_wait(Instant::now()),
    })
}

async fn drive(
    args: RunArgs,
    host: &ProcessHost,
    no_terminal: NoTerminalPrompter,
    supervisor: &mut Supervisor,
    view: &mut RunView<'_>,
) -> Result<Envelope, StartFailure> {
    if let Some(path) = args.files.receipt_file.clone() {
        view.receipt_file = Some(ReceiptFile::named(path.clone()));
        let prepare = move |_: &WorkCx| Ok(ReceiptFile::prepare(&path)?);
        let file = start::read(host.scopes(), supervisor, prepare).await?;
        view.receipt_file = Some(file);
    }
    let background = args.background;
    let streams = args.output.stream_json;
    let (model_args, store_args) = (args.model.clone(), args.session.store.clone());
    let named = args.session.choice.named();
    let wait = args
        .session
        .wait_session
        .map_or(Duration::ZERO, Duration::from);
    let session = named.map(|name| {
        NamedSession::new(name, "run --session", &args.model, &args.session.store).waiting(wait)
    });
    let prompter = prompter(&args.permissions, no_terminal);
    let prompt = if args.permissions.answer().is_some() {
        None
    } else {
        QuestionPrompt::of_process(&host.output, &host.terminal)
    };
    let project = start::project::choose(&args.model, host, supervisor).await?;
    // The deadline also covers the wait for standard input.
    let timeout = args.limits.timeout.map(Duration::from);
    supervisor.control.set_timeout(host.started, timeout);
    let inputs = inputs::read(args, host, project, prompter, supervisor).await?;
    let control = &mut supervisor.control;
    control.set_grace(inputs.grace);
    control.set_timeout(host.started, inputs.timeout);
    let opening = Opening {
        command: "run",
        system: inputs.system,
        session,
        reporter: start::StartReporter::new(host),
        sockets: host.sockets.clone(),
        asks: match prompt {
            Some(_) => QuestionRecipient::Subscribers,
            None => QuestionRecipient::Prompter,
        },
    };
    let opened = start::open(opening, supervisor, |said| view.hint(said)).await?;
    let Opened {
        system,
        listener,
        open,
        continued,
        mode: _,
    } = opened;
    continued.model.iter().for_each(|said| view.hint(said));
    continued.folder.iter().for_each(|said| view.note(said));
    let configured = system.config().store.path.as_deref();
    let flags = SameFlags::of_used_store(&model_args, &store_args, configured);
    print_open_notes(view, &open, &flags);
    view.cost = Some(SessionCost::new(system.prices()));
    let session = &open.session;
    view.questions = prompt.map(|prompt| RunQuestions::new(prompt, session.clone()));
    let job = job_control().map_err(CliError::from)?;
    let remote = TerminalSession::new(listener, session, system.store_file());
    remote
        .listener
        .problem()
        .iter()
        .for_each(|said| view.warn(said));
    let mut turns = RunTurns {
        job,
        flags,
        remote,
        session,
        background: &background,
        events: session.watch(),
        servers: system.mcp(),
        news: system.mcp().status_events(),
        view,
        supervisor,
        stop: None,
        reader: StreamReader::new(streams),
        other_stops: Vec::new(),
        works_at_stop: Vec::new(),
        owner_idle: true,
        unreported: &open.unreported,
    };
    let outcome = turns.send_all(inputs.prompts, inputs.images).await;
    let envelope = turns.end(session.id().clone(), outcome, &system).await;
    // From now on, this process does not read the keyboard, so typed keys go to the shell.
    view.questions = None;
    Ok(envelope)
}

/// Prompter, which answers permission questions, for a run that does not ask at a terminal.
fn prompter(args: &PermissionArgs, no_terminal: NoTerminalPrompter) -> Arc<dyn Prompter> {
    match args.answer() {
        Some(answer) => Arc::new(FixedAnswer(answer)),
        None => Arc::new(no_terminal),
    }
}

/// Lists the project's instructions for the model, and the background work that an earlier process left running.
fn print_open_notes(view: &RunView<'_>, open: &OpenSession, flags: &SameFlags) {
    for line in describe_instructions(&open.instructions) {
        view.note(&line);
    }
    for found in &open.found {
        view.note(&found_in_run(found));
    }
    let running = open.found.iter().filter(|work| work.alive).count();
    if let Some(said) = to_stop(running, &flags.stop(open.session.id())) {
        view.note(&said);
    }
    if let Some(turn) = &open.interrupted {
        // A program must not miss this, so it is also printed beside JSON.
        view.warn(describe_interrupted(turn));
        view.warn_calls(|style| describe_effects(&turn.effects, style));
    }
}
