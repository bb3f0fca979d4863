//! One run of turns, undisturbed, or disturbed at one point of the run by one stop method.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::{EventSink, RunHistory, RunOutcome};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_log::session::stream_of;
use allstop_log::{Log, SessionWriter};
use allstop_scope::{Deadline, Scope, ScopeOptions, StopRequest};
use allstop_tools::BackgroundHost as _;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::case::{Case, finish, made_at, next_of_run, observed, session_id, tasks_loose, watch};
use crate::drive::{read_all, read_on};
use crate::observe::{Disturbance, EVENT, Moment, Points, RunObservation, RunWitness};
use crate::stage::clockwork::Tick;
use crate::stage::{
    PlannedStops, RunStage, RunningSubject, StopReceipt, StoppableRun, Subject, SubjectPlay, plan,
};
use crate::stop_method::StopMethod;

/// Plays a run of turns. `None` if this method cannot stop anything at this point.
pub(super) async fn run_turns(
    case: &Case<'_>,
    tick: Tick,
    stage: RunStage,
    subject: &dyn Subject,
    prompts: Vec<Arc<str>>,
) -> Option<RunObservation> {
    let log: Arc<dyn Log> = Arc::clone(&stage.store.log) as _;
    let live = RunUnderWay::new(&stage);
    let whole = case.undisturbed.as_ref();
    let at = |point: u32| Some(whole?.points.get(point as usize)?.at);
    let deadline = match case.stop {
        Some((point, StopMethod::Deadline)) => at(point),
        Some((point, method)) => {
            plan(&live, point, method);
            None
        }
        None => None,
    };
    let session =
        SessionWriter::create(Arc::clone(&log), session_id(), made_at(), "/explored", None);
    let session = session.await.expect("a new session");
    stage.watch.points.open();
    stage.watch.points.reach(Moment::Before, "run", "");
    live.started(subject.start(SubjectPlay {
        scope: below(&stage.session, &stage, deadline),
        session,
        prompts,
        events: observer(&stage),
        background: Some(Arc::clone(stage.background())),
    }));
    stage.watch.points.reach(Moment::After, "start", "");
    let mut ended = None;
    let is_over = |cx: &mut Context<'_>| {
        let outcome = match live.poll_outcome(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending if live.caller_gone().is_some() && is_free(&*log, cx) => None,
            Poll::Pending => return false,
        };
        ended = Some((outcome, stage.witness().now(), stage.watch.points.elapsed()));
        live.is_over();
        true
    };
    let hung = watch(&*live, &stage, &tick, is_over, |_| {
        live.stops().all_answered()
    })
    .await;
    let (outcome, over, over_at) =
        ended.unwrap_or_else(|| (None, stage.witness().now(), stage.watch.points.elapsed()));
    // If a run predicts that it cannot finish in time, it ends before its deadline. In this case the deadline has
    // stopped nothing.
    let in_time = deadline.is_none_or(|deadline| over_at >= deadline);
    stage.watch.points.close();
    if !live.stops().applied() || !in_time {
        return None;
    }
    stage.store.log.heal();
    let (turns, history) = match outcome {
        Some(RunOutcome { turns, history }) => (Some(turns), Some(history)),
        None => (None, None),
    };
    let held = history.as_ref().and_then(|history| match history {
        RunHistory::Logged(session) => Some(session.state().clone()),
        RunHistory::Bare { .. } => None,
    });
    let settings = subject.settings().clone();
    let budget = settings.budget.as_ref();
    let observed = observed(&stage, live.stops(), (over, over_at), hung);
    let mut observed = RunObservation {
        reserved_tokens: budget.map_or(0, |budget| budget.reserved_tokens()),
        caller_gone: live.caller_gone(),
        deadline,
        turns,
        // The first record opens the session, and comes before the first point.
        records_before: 1,
        records: read_all(&*case.log, &session_id()).await,
        state: held,
        settings,
        ..observed
    };
    observed.tasks_left = tasks_loose(&stage.root).await;
    if !hung {
        // A session without its lease (its right to write) no longer exists in this process. The successor of the
        // session begins with the content of the log.
        let lease_lost = matches!(
            case.stop,
            Some((_, StopMethod::Stop(_, CauseKind::LeaseLost)))
        );
        let history = history.filter(|_| !lease_lost);
        observed.next = next_of_run(subject, history, &log).await;
        observed.records_after_next =
            read_on(&*case.log, &session_id(), observed.records.clone()).await;
    }
    let root = stage.root.clone();
    drop(live);
    finish(&mut observed, &stage, [root], &stage.background().works()).await;
    Some(observed)
}

/// The scope of the run. If the method of the stop is a deadline, the scope has this deadline.
fn below(session: &Scope, stage: &RunStage, deadline: Option<Duration>) -> Scope {
    let Some(after) = deadline else {
        return session.clone();
    };
    let deadline = Deadline {
        at: Instant::now() + after,
        stops: None,
        detail: "explored".into(),
        extent: Extent::Turn,
        bystanders: vec![stage.background().scope()],
    };
    let options = ScopeOptions::default().deadline(deadline);
    session
        .child("session/explored/deadline", options)
        .unwrap_or_else(|_| session.clone())
}

/// Makes each live event a point.
fn observer(stage: &RunStage) -> EventSink {
    let (points, witness) = (stage.watch.points.clone(), stage.witness().clone());
    EventSink::observer(move |event| {
        witness.note(|notes, now| notes.events.push((now, event.clone())));
        points.reach(Moment::After, EVENT, event_name(event));
    })
}

/// True if the session has no owner any more. An engine (the task of a run) whose caller is gone unlocks the session
/// after the engine has ended.
fn is_free(log: &dyn Log, cx: &mut Context<'_>) -> bool {
    let mut owner = log.lock_owner(&stream_of(&session_id()));
    matches!(
        std::pin::Pin::new(&mut owner).poll(cx),
        Poll::Ready(Ok(None))
    )
}

fn event_name(event: &allstop_agent::AgentEvent) -> &'static str {
    use allstop_agent::AgentEvent as E;
    match event {
        E::TurnStarted { .. } => "turn_started",
        E::StepStarted { .. } => "step_started",
        E::TextDelta { .. } => "text_delta",
        E::ReasoningDelta { .. } => "reasoning_delta",
        E::StepAnswered { .. } => "step_answered",
        E::RetryScheduled { .. } => "retry_scheduled",
        E::RequestShortened { .. } => "request_shortened",
        E::SummaryStarted { .. } => "summary_started",
        E::SummaryFailed { .. } => "summary_failed",
        E::ToolRequested { .. } => "tool_requested",
        E::PermissionAsked { .. } => "permission_asked",
        E::PermissionAnswered { .. } => "permission_answered",
        E::ToolStarted { .. } => "tool_started",
        E::ToolOutput { .. } => "tool_output",
        E::ToolProgress { .. } => "tool_progress",
        E::ToolFinished { .. } => "tool_finished",
        E::BackgroundStarted { .. } => "background_started",
        E::StopHeard { .. } => "stop_heard",
        E::TurnEnded { .. } => "turn_ended",
    }
}

/// A run of turns that has started.
struct RunUnderWay {
    witness: RunWitness,
    points: Points,
    root: Scope,
    session: Scope,
    background: Scope,
    run: Mutex<Option<Box<dyn RunningSubject>>>,
    stops: PlannedStops,
    caller_gone: Mutex<Option<Disturbance>>,
    over: AtomicBool,
}

impl RunUnderWay {
    fn new(stage: &RunStage) -> Arc<Self> {
        Arc::new(Self {
            witness: stage.witness().clone(),
            points: stage.watch.points.clone(),
            root: stage.root.clone(),
            session: stage.session.clone(),
            background: stage.background().scope(),
            run: Mutex::default(),
            stops: stage.planned_stops(),
            caller_gone: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    fn started(&self, run: Box<dyn RunningSubject>) {
        *self.run.lock() = Some(run);
    }

    /// Records that the run is over, so that a later stop finds nothing to stop.
    fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<Option<RunOutcome>> {
        let mut run = self.run.lock();
        let Some(running) = &mut *run else {
            return Poll::Pending;
        };
        // Keep the ended run, because a stop of an ended run is also possible.
        running.poll_outcome(cx).map(Result::ok)
    }

    fn caller_gone(&self) -> Option<Disturbance> {
        self.caller_gone.lock().clone()
    }

    fn ask(&self, order: StopRequest) -> bool {
        let (extent, cause) = (order.extent, order.cause.clone());
        self.stops.ask(extent, cause, || self.receipt_of(order))
    }

    fn receipt_of(&self, order: StopRequest) -> Option<StopReceipt> {
        let of_scope = |scope: &Scope, order| {
            let stop = scope.stop(order);
            async move { stop.receipt().await }.boxed()
        };
        match order.extent {
            Extent::Call => Some(of_scope(&self.witness.running_call()?.1, order)),
            Extent::Turn => {
                // Release the lock first: a stop can reach points, and the actions at these points may need the lock.
                let run = self.run.lock().take()?;
                let answer = run.stop(order.bystander(&self.background));
                self.run.lock().get_or_insert(run);
                Some(answer)
            }
            Extent::Process => Some(of_scope(&self.root, order)),
            _ => Some(of_scope(&self.session, order)),
        }
    }
}

impl StoppableRun for RunUnderWay {
    fn stops(&self) -> &PlannedStops {
        &self.stops
    }

    fn act(&self, method: StopMethod) -> bool {
        match method {
            StopMethod::Stop(extent, cause) => {
                self.ask(StopRequest::new(extent, Cause::new(cause)))
            }
            StopMethod::Force(_) => {
                let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User));
                self.ask(order.grace(Duration::ZERO))
            }
            StopMethod::Drop => self.caller_goes_away(),
            _ => false,
        }
    }
}

impl RunUnderWay {
    fn caller_goes_away(&self) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let Some(run) = self.run.lock().take() else {
            return false;
        };
        drop(run);
        *self.caller_gone.lock() = Some(Disturbance {
            cause: Cause::new(CauseKind::Disconnect),
            point: Some(self.points.newest()),
            accepted: Some(self.witness.now()),
            at: self.points.elapsed(),
        });
        true
    }
}
