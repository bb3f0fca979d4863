//! `allstop run`: opens a session, runs the prompts, ends the background work, and says what it came to.

pub(crate) mod options;
mod servers;
mod show;
mod supervise;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{AgentEvent, EventSink, History, RunOutcome, TurnError, TurnErrorKind};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_runtime::{Envelope, OpenSession, StartError, System, SystemOptions};
use allstop_scope::{GRACE_DEFAULT, RootOptions, Scope, Stop, StopOrder, WorkSpec};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{Answer, Prompter};
use parking_lot::Mutex;

use crate::Exit;
use crate::args::{BackgroundArgs, PermissionArgs, RunArgs};
use crate::commands::sessions::resolve;
use crate::control::{Control, Effect};
use crate::display::{Watcher, found_in_words, watch};
use crate::host::Host;
use crate::problem::Problem;
use crate::prompt::TerminalPrompter;
use crate::signals::Signals;
use show::Show;
use supervise::{Cut, Supervisor};

/// How long the store may take to close: what it has acknowledged is safe without.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// What output still gets when the last moment has come.
const OUTPUT_WAIT_LAST: Duration = Duration::from_millis(30);

/// Runs the command.
pub(crate) async fn run(args: RunArgs, host: &Host) -> Result<Exit, Problem> {
    // First of all: from here on a signal is answered with an envelope.
    let signals = Signals::install()?;
    let config = options::config(&args)?;
    let grace = config.deadlines.grace.map_or(GRACE_DEFAULT, Duration::from);
    let mut supervisor = Supervisor::new(signals, Control::new(grace));
    let mut show = Show::new(host, &args.output);
    let prompter = prompter(host, &args.permissions, &show);
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
        let opened = open(options, args.session.session.clone(), limit).await?;
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

fn prompter(host: &Host, args: &PermissionArgs, show: &Show<'_>) -> Arc<dyn Prompter> {
    let fixed = |answer| -> Arc<dyn Prompter> { Arc::new(FixedAnswer(answer)) };
    match (args.yes, args.deny) {
        (true, _) => fixed(Answer::AllowOnce),
        (_, true) => fixed(Answer::Deny),
        _ => match TerminalPrompter::open(&host.output, &host.terminal, show.asked()) {
            Some(prompter) => Arc::new(prompter),
            None => fixed(Answer::Deny),
        },
    }
}

/// Why nothing runs.
enum NotStarted {
    /// No envelope: the caller did not ask for anything that could have one.
    Usage(Problem),
    Failed(StopReason, TurnError),
}

impl NotStarted {
    fn of(problem: Problem, kind: TurnErrorKind) -> Self {
        if problem.code == 2 {
            return Self::Usage(problem);
        }
        let Problem { message, hint, .. } = problem;
        let error = TurnError {
            kind,
            message,
            hint,
        };
        Self::Failed(StopReason::Error, error)
    }

    fn store(problem: Problem) -> Self {
        Self::of(problem, TurnErrorKind::Store)
    }

    fn input(problem: Problem) -> Self {
        Self::of(problem, TurnErrorKind::Invalid)
    }
}

impl From<StartError> for NotStarted {
    fn from(error: StartError) -> Self {
        if error.kind.is_usage() {
            return Self::Usage(error.into());
        }
        Self::Failed(StopReason::Error, error.into())
    }
}

/// Opens the store and the session. The deadline of the run bounds this too: a store may hang.
async fn open(
    options: SystemOptions,
    id: Option<String>,
    limit: Option<Duration>,
) -> Result<(System, OpenSession, History), NotStarted> {
    let opening = async {
        let system = System::open(options).await?;
        let (session, history) = match id {
            Some(id) => {
                let id = resolve(&**system.log(), &id)
                    .await
                    .map_err(NotStarted::store)?;
                system.resume_session(id).await?
            }
            None => system.new_session(None).await?,
        };
        Ok((system, session, history))
    };
    let Some(limit) = limit else {
        return opening.await;
    };
    let late = |_elapsed| {
        let error = TurnError {
            kind: TurnErrorKind::Store,
            message: "the store was not open when the run's deadline came".to_owned(),
            hint: Some("another process may hold it, or its disk hangs".to_owned()),
        };
        Err(NotStarted::Failed(StopReason::Timeout, error))
    };
    tokio::time::timeout(limit, opening)
        .await
        .unwrap_or_else(late)
}

/// Names what an earlier process left.
fn tell_found(show: &Show<'_>, session: &OpenSession) {
    for found in &session.found {
        show.note(&found_in_words(found));
    }
    if !session.recovered.is_empty() {
        show.note(
            "an earlier run of this session ended without an ending: its turn was rolled back",
        );
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

/// A run under way.
struct Running<'a, 'b> {
    system: &'a System,
    session: &'a OpenSession,
    background: &'a BackgroundArgs,
    show: &'a mut Show<'b>,
    supervisor: &'a mut Supervisor,
    /// The stop that a signal or a deadline has begun.
    stop: Option<Stop>,
    /// The deadline of the run: it bounds the wait for background work too.
    deadline: Option<(Instant, Duration)>,
    /// The exit code, where the turns completed and the wait for background work was cut.
    wait_cut: Option<u8>,
}

impl Running<'_, '_> {
    async fn drive(mut self, history: History, prompts: Vec<Arc<str>>) -> Envelope {
        let turn = history.next_turn();
        let outcome = match self.turns(history, prompts).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let mut envelope = self.cut_short(error);
                envelope.turn = Some(turn);
                return envelope;
            }
        };
        let mut envelope = Envelope::of_run(self.session.id.clone(), &outcome.turns);
        let mut history = outcome.history;
        match self
            .end_background(&mut history, envelope.stop_reason)
            .await
        {
            Ok(Some(receipt)) => {
                let conversation = envelope.receipt.as_ref().map(|turns| turns.conversation());
                let receipt = Receipt::clone(&receipt)
                    .with_conversation(conversation.unwrap_or_default())
                    .with_usage(envelope.usage);
                envelope = envelope.with_receipt(Arc::new(receipt));
            }
            Ok(None) => {}
            Err(message) => self.show.warn(&message),
        }
        match self.wait_cut {
            Some(code) => envelope.with_exit_code(code),
            None => envelope,
        }
    }

    /// Runs the turns. `Err`: the last moment came, or the engine was lost.
    async fn turns(
        &mut self,
        history: History,
        prompts: Vec<Arc<str>>,
    ) -> Result<RunOutcome, Option<TurnError>> {
        let (sink, mut events) = EventSink::channel();
        let mut run = self.session.run(history, prompts, sink);
        let run_scope = run.scope().clone();
        let stop = Mutex::new(None);
        let begin = |cause: Cause| {
            let keeps = self.background.keep_background;
            let begun = begin_stop(self.system, self.session, &run_scope, keeps, cause);
            *stop.lock() = Some(begun);
        };
        let waited = {
            let mut watcher = DeadlineWatcher {
                show: self.show,
                heard: &begin,
            };
            let watching = watch(&mut events, &mut watcher, run.wait());
            let carry_out = |effect: Effect| {
                match effect {
                    Effect::Stop(cause) => begin(cause),
                    Effect::Force => stop.lock().iter().for_each(Stop::force),
                    Effect::Nothing => {}
                }
                ControlFlow::Continue(())
            };
            self.supervisor.race(watching, carry_out).await
        };
        self.stop = stop.into_inner();
        match waited {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(lost)) => Err(Some(TurnError {
                kind: TurnErrorKind::Bug,
                message: format!("the engine was lost: {lost}"),
                hint: Some("this is a bug of Allstop: please report it".to_owned()),
            })),
            Err(Cut::LastMoment | Cut::Stopped) => Err(None),
        }
    }

    /// What is known when the engine has not answered: the account of the stop at this moment.
    fn cut_short(&self, error: Option<TurnError>) -> Envelope {
        let reason = match &error {
            Some(_) => StopReason::Error,
            None => self.supervisor.control.stop_reason(),
        };
        let mut envelope = Envelope::of_no_run(Some(self.session.id.clone()), reason, error);
        if let Some(stop) = &self.stop {
            let receipt = stop.account_now();
            envelope.cancel_observed = receipt.cancel_observed();
            envelope.receipt = Some(receipt);
        }
        envelope
    }

    /// Ends the background work as the flags say, and records what became of it.
    async fn end_background(
        &mut self,
        history: &mut History,
        reason: StopReason,
    ) -> Result<Option<Arc<Receipt>>, String> {
        let was_stopped = matches!(
            reason,
            StopReason::Cancelled | StopReason::Shutdown | StopReason::Timeout
        );
        if self.background.keep_background {
            return self.keep_background(history).await.map(|()| None);
        }
        if self.background.wait_background && !was_stopped {
            self.wait_background().await;
        }
        let receipt = self.stop_background().await;
        let recorded = self
            .supervisor
            .race(self.session.record_background(history), |_| {
                ControlFlow::Continue(())
            });
        if let Ok(Err(error)) = recorded.await {
            self.show.note(&format!(
                "the end of background work is not recorded: {error}"
            ));
        }
        Ok(receipt)
    }

    async fn wait_background(&mut self) {
        let stops_all = |stop: &Stop| stop.request().extent == Extent::Process;
        if self.stop.as_ref().is_some_and(stops_all) {
            // A signal that came between the commit and this.
            let control = &self.supervisor.control;
            self.wait_cut = Some(control.exit_code(control.stop_reason()));
            return;
        }
        if self.session.background.running().is_empty() {
            return;
        }
        self.show
            .note("waiting for background work · Ctrl-C stops it");
        let (system, stop) = (self.system, &mut self.stop);
        let carry_out = |effect: Effect| {
            if let Effect::Stop(cause) = effect {
                *stop = Some(system.scope().stop(StopOrder::new(Extent::Process, cause)));
            }
            ControlFlow::Break(())
        };
        let deadline = self.deadline;
        let session = self.session;
        let idle_in_time = async {
            tokio::select! {
                () = session.wait_idle() => true,
                () = past(deadline) => false,
            }
        };
        // Cut or not: what still runs is stopped next.
        match self.supervisor.race(idle_in_time, carry_out).await {
            Ok(true) => {}
            Ok(false) => {
                let limit = deadline.map(|(_, limit)| limit).unwrap_or_default();
                let cause =
                    Cause::new(CauseKind::Deadline).detail(format!("run deadline of {limit:?}"));
                self.supervisor.control.stopping(Instant::now());
                let order = StopOrder::new(Extent::Process, cause);
                self.stop = Some(self.system.scope().stop(order));
                self.wait_cut = Some(StopReason::Timeout.exit_code());
            }
            Err(_) => {
                let control = &self.supervisor.control;
                self.wait_cut = Some(control.exit_code(control.stop_reason()));
            }
        }
    }

    /// Stops what still runs. The receipt, if anything did.
    async fn stop_background(&mut self) -> Option<Arc<Receipt>> {
        let stopping_all = self
            .stop
            .clone()
            .filter(|stop| stop.request().extent == Extent::Process);
        let stop = match stopping_all {
            Some(stop) => stop,
            None if self.session.background.running().is_empty() => return None,
            None => {
                self.supervisor.control.stopping(Instant::now());
                let cause = Cause::new(CauseKind::Parent)
                    .detail("the run has ended")
                    .by("cli");
                self.system
                    .scope()
                    .stop(StopOrder::new(Extent::Process, cause))
            }
        };
        let force = |effect: Effect| {
            if effect != Effect::Nothing {
                stop.force();
            }
            ControlFlow::Continue(())
        };
        match self.supervisor.race(stop.receipt(), force).await {
            Ok(receipt) => Some(receipt),
            Err(_) => Some(stop.account_now()),
        }
    }

    async fn keep_background(&mut self, history: &mut History) -> Result<(), String> {
        let keeping = self.session.keep_background(history);
        let kept = match self
            .supervisor
            .race(keeping, |_| ControlFlow::Continue(()))
            .await
        {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => return Err(format!("background work is not kept: {error}")),
            Err(_) => {
                return Err("background work may not be kept: the store does not answer".to_owned());
            }
        };
        for work in &kept.kept {
            self.show.warn(&format!(
                "{} runs on: {} · end it: kill {} · output: {}",
                work.id,
                work.name,
                work.keeper.pid,
                work.output.display()
            ));
        }
        for work in &kept.not_kept {
            self.show.warn(&format!(
                "{} ends with this process: {} · {}",
                work.id, work.name, work.why
            ));
        }
        Ok(())
    }
}

async fn past(deadline: Option<(Instant, Duration)>) {
    match deadline {
        Some((at, _)) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Shows events, and hears of the turn's own deadlines: they are a stop like that of a signal, and the background work
/// is not to wait for its end.
struct DeadlineWatcher<'a, 'b> {
    show: &'a mut Show<'b>,
    heard: &'a (dyn Fn(Cause) + Sync),
}

impl Watcher for DeadlineWatcher<'_, '_> {
    fn event(&mut self, event: &AgentEvent) {
        self.show.event(event);
        if let AgentEvent::StopHeard { cause } = event
            && matches!(cause.kind, CauseKind::Deadline | CauseKind::Inactivity)
        {
            (self.heard)(cause.clone());
        }
    }

    fn missed(&mut self, count: u64) {
        self.show.missed(count);
    }
}

/// Begins the stop that a signal or a deadline asks for. Background work is stopped with the turn, unless it is to be kept: one
/// ladder for all of it, so that one grace bounds the exit.
fn begin_stop(
    system: &System,
    session: &OpenSession,
    run: &allstop_scope::Scope,
    keeps_background: bool,
    cause: Cause,
) -> Stop {
    use allstop_tools::BackgroundHost as _;
    if !keeps_background && !session.background.running().is_empty() {
        return system.scope().stop(StopOrder::new(Extent::Process, cause));
    }
    run.stop(StopOrder::new(Extent::Turn, cause).bystander(&session.background.scope()))
}
