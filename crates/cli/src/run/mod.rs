//! `allstop run`: a client of one session. It opens the session, sends the prompts, ends what they leave, and says what
//! all of it came to.

mod end;
mod inputs;
mod show;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::StopReason;
use allstop_runtime::{Envelope, OpenSession, QuestionRecipient};
use allstop_scope::GRACE_DEFAULT;
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, Prompter};

use crate::Exit;
use crate::args::{PermissionArgs, RunArgs};
use crate::control::Control;
use crate::display::found_in_words;
use crate::host::Host;
use crate::job_control::JobControl;
use crate::pasted::SameFlags;
use crate::problem::Problem;
use crate::prompt::{Nobody, TerminalPrompter};
use crate::start::{self, Opening, StartFailure};
use crate::supervise::Supervisor;
use show::Show;
use turns::RunTurns;

/// Runs the command.
pub(crate) async fn run(args: RunArgs, host: &Host) -> Result<Exit, Problem> {
    // First of all: from here on a signal is answered with an envelope.
    let signals = host.signals()?;
    let mut control = Control::new(args.limits.grace.map_or(GRACE_DEFAULT, Duration::from));
    control.set_timeout(host.started, args.limits.timeout.map(Duration::from));
    let mut supervisor = Supervisor::new(signals, control);
    let nobody = Nobody::default();
    let mut show = Show::new(host, &args, nobody.clone());
    let prompter = prompter(host, &args.permissions, &show, nobody);

    let envelope = match drive(args, host, prompter, &mut supervisor, &mut show).await {
        Ok(envelope) => envelope,
        Err(StartFailure::Ended(envelope)) => *envelope,
        Err(StartFailure::Usage(problem)) => return Err(problem),
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
        output_wait: control.output_wait(Instant::now()),
    })
}

async fn drive(
    args: RunArgs,
    host: &Host,
    prompter: Arc<dyn Prompter>,
    supervisor: &mut Supervisor,
    show: &mut Show<'_>,
) -> Result<Envelope, StartFailure> {
    let (background, id) = (args.background, args.session.session.clone());
    let flags = SameFlags::of_store(&args.session.store);
    let inputs = inputs::read(args, host, prompter, supervisor).await?;
    let control = &mut supervisor.control;
    control.set_grace(inputs.grace);
    control.set_timeout(host.started, inputs.timeout);
    let opening = Opening {
        system: inputs.system,
        session: id,
        flags,
        asks: QuestionRecipient::Prompter,
    };
    let (system, open) = start::open(opening, supervisor, |said| show.hint(said)).await?;
    tell_earlier(show, &open);
    let session = &open.session;
    let job = JobControl::install().map_err(Problem::from)?;
    let mut turns = RunTurns {
        job,
        session,
        background: &background,
        events: session.watch(),
        news: system.mcp().status_events(),
        show,
        supervisor,
        stop: None,
        owner_idle: true,
    };
    let outcome = turns.send_all(inputs.prompts).await;
    Ok(turns.end(session.id().clone(), outcome, &system).await)
}

fn prompter(
    host: &Host,
    args: &PermissionArgs,
    show: &Show<'_>,
    nobody: Nobody,
) -> Arc<dyn Prompter> {
    let fixed = |answer| -> Arc<dyn Prompter> { Arc::new(FixedAnswer(answer)) };
    match (args.yes, args.deny) {
        (true, _) => fixed(PermissionAnswer::AllowOnce),
        (_, true) => fixed(PermissionAnswer::Deny),
        _ => match TerminalPrompter::open(&host.output, &host.terminal, show.asked()) {
            Some(prompter) => Arc::new(prompter),
            None => Arc::new(nobody),
        },
    }
}

/// Names what an earlier process left.
fn tell_earlier(show: &Show<'_>, open: &OpenSession) {
    for found in &open.found {
        show.note(&found_in_words(found));
    }
    if open.interrupted.is_some() {
        show.note(
            "an earlier run of this session ended without an ending: its turn was rolled back",
        );
    }
}
