//! `allstop run`: opens a session, runs the prompts, ends the background work, and says what it came to.

mod background;
pub(crate) mod options;
mod running;
mod servers;
mod show;
pub(crate) mod start;
mod supervise;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_core::receipt::ItemKind;
use allstop_runtime::{Envelope, System};
use allstop_scope::{GRACE_DEFAULT, RootOptions, Scope, WorkSpec};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{Answer, Prompter};

use crate::Exit;
use crate::args::{PermissionArgs, RunArgs};
use crate::control::Control;
use crate::host::Host;
use crate::problem::Problem;
use crate::prompt::{Nobody, TerminalPrompter};
use running::Running;
use show::Show;
use start::{NotStarted, open, tell_found};
use supervise::Supervisor;

/// How long the store may take to close: what it has acknowledged is safe without.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// What output still gets when the last moment has come.
const OUTPUT_WAIT_LAST: Duration = Duration::from_millis(30);

/// Runs the command.
pub(crate) async fn run(args: RunArgs, host: &Host) -> Result<Exit, Problem> {
    // First of all: from here on a signal is answered with an envelope.
    let signals = host.signals()?;
    let config = options::config(&args)?;
    let grace = config.deadlines.grace.map_or(GRACE_DEFAULT, Duration::from);
    let mut supervisor = Supervisor::new(signals, Control::new(grace));
    let nobody = Nobody::default();
    let mut show = Show::new(host, &args.output, nobody.clone());
    let prompter = prompter(host, &args.permissions, &show, nobody);
    let limit = config.deadlines.run.map(Duration::from);

    let starting = async {
        let options = options::system(
            &args.session.store,
            args.model.record.clone(),
            host,
            config,
            prompter,
        )
        .map_err(NotStarted::store)?;
        let prompts = options::prompts(&args).await.map_err(NotStarted::input)?;
        let opened = open(options, args.session.session.clone(), limit, &show).await?;
        Ok((prompts, opened))
    };
    let started = supervisor.race(starting, |_| ControlFlow::Break(()));
    let envelope = match started.await {
        Ok(Ok((prompts, (system, session, history)))) => {
            tell_found(&show, &session);
            let servers = show.servers();
            let run = Running {
                system: &system,
                session: &session,
                background: &args.background,
                show: &mut show,
                supervisor: &mut supervisor,
                stop: None,
                deadline: limit.map(|limit| (Instant::now() + limit, limit)),
                wait_cut: None,
                kept: Vec::new(),
            };
            let envelope = tokio::select! {
                envelope = run.drive(history, prompts) => envelope,
                never = servers.tell(system.mcp().news()) => match never {},
            };
            close(&system, &show, &envelope, &mut supervisor).await;
            envelope
        }
        Ok(Err(NotStarted::Usage(problem))) => return Err(problem),
        Ok(Err(NotStarted::Failed(reason, error))) => {
            Envelope::of_no_run(None, reason, Some(error))
        }
        Err(_cut) => Envelope::of_no_run(None, supervisor.control.stop_reason(), None),
    };
    let control = &supervisor.control;
    let code = match envelope.stop_reason {
        // A stop that came after the commit found nothing to do: the turn stands.
        StopReason::Completed => envelope.exit_code,
        reason => control.exit_code(reason),
    };
    show.end(&envelope.with_exit_code(code));
    Ok(Exit {
        code,
        output_wait: control.last_moment().map(|at| {
            at.saturating_duration_since(Instant::now())
                .max(OUTPUT_WAIT_LAST)
        }),
    })
}

/// Saves the recording and closes the store, unless that has failed: then there is nothing to wait for.
async fn close(system: &System, show: &Show<'_>, envelope: &Envelope, supervisor: &mut Supervisor) {
    let has_failed = |error: &TurnError| error.kind == TurnErrorKind::Store;
    let store_failed = envelope.error.as_ref().is_some_and(has_failed);
    let closing = async {
        save_recording(system, show, CLOSE_WAIT_MAX).await;
        if !store_failed {
            drop(tokio::time::timeout(CLOSE_WAIT_MAX, system.close()).await);
        }
    };
    let _closed_or_last_moment = supervisor
        .race(closing, |_| ControlFlow::Continue(()))
        .await;
}

fn prompter(
    host: &Host,
    args: &PermissionArgs,
    show: &Show<'_>,
    nobody: Nobody,
) -> Arc<dyn Prompter> {
    let fixed = |answer| -> Arc<dyn Prompter> { Arc::new(FixedAnswer(answer)) };
    match (args.yes, args.deny) {
        (true, _) => fixed(Answer::AllowOnce),
        (_, true) => fixed(Answer::Deny),
        _ => match TerminalPrompter::open(&host.output, &host.terminal, show.asked()) {
            Some(prompter) => Arc::new(prompter),
            None => Arc::new(nobody),
        },
    }
}

/// Writes the script of a recorded run, also of a stopped one.
async fn save_recording(system: &System, show: &Show<'_>, limit: Duration) {
    let Some(recording) = system.recording().cloned() else {
        return;
    };
    let path = recording.path().display().to_string();
    // In a scope of its own: that of the system may be stopped, and a disk may block.
    let scope = Scope::root("recording", RootOptions::current());
    let spec = WorkSpec::new(ItemKind::Thread, "recording");
    let Ok(saving) = scope.spawn_blocking(spec, move |_| recording.save()) else {
        return;
    };
    match tokio::time::timeout(limit, saving).await {
        Ok(Ok(Ok(()))) => show.note(&format!("recorded: allstop run --model script:{path} …")),
        Ok(Ok(Err(error))) => show.warn(&format!("the recording {path} is not written: {error}")),
        Ok(Err(_)) | Err(_) => show.warn(&format!("the recording {path} is not written")),
    }
}
