//! One run of a scenario, undisturbed or stopped at one point of the run by one method. After the run, the driver sends
//! the next message and observes everything that remains.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::{EventSink, RunHistory};
use allstop_core::{Cause, CauseKind, Extent, SessionId, StopReason, Timestamp};
use allstop_log::{Log, SessionWriter};
use allstop_scope::{Scope, StopRequest};
use allstop_session::{FollowUp, NewMessage, Session, Sessions};
use allstop_tools::BackgroundWork;
use tokio::time::{sleep, timeout};

use super::session;
use super::turns::run_turns;
use crate::observe::{
    ANSWERED_WITHIN, DeliveryJournal, Moment, NEXT_MESSAGE, Order, POLL, RunObservation,
};
use crate::stage::clockwork::{self, OWN_TASKS, Tick};
use crate::stage::{
    ChildProcesses, PlannedStops, Played, RunStage, Scenario, Setup, StoppableRun, Subject,
    SubjectPlay, scopes,
};
use crate::stop_method::StopMethod;

/// One run of a scenario.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) log: Arc<dyn Log>,
    /// If the run is stopped: the number of the point, and the method of the stop.
    pub(crate) stop: Option<(u32, StopMethod)>,
    /// Journal for the process that examines the store after a kill.
    pub(crate) journal: Option<Arc<DeliveryJournal>>,
    /// Run of the same case without a stop, if that run is known.
    pub(crate) undisturbed: Option<Arc<RunObservation>>,
}

/// Plays a case. `None` if this method cannot stop anything at this point.
pub(crate) fn play(case: &Case<'_>) -> Option<RunObservation> {
    let before = ChildProcesses::now();
    let played = clockwork::run(|tick| Box::pin(run(case, tick)));
    let processes_left = before.end_newer();
    Some(RunObservation {
        undisturbed: case.undisturbed.clone(),
        point: case.stop.map(|(point, _)| point),
        store_fault: match case.stop {
            Some((_, StopMethod::Store(fault))) => Some(fault),
            _ => None,
        },
        processes_left,
        ..played?
    })
}

async fn run(case: &Case<'_>, tick: Tick) -> Option<RunObservation> {
    let stage = RunStage::new(Arc::clone(&case.log));
    let Setup { play, next_ends } = case.scenario.build(&stage);
    let observed = match play {
        Played::Run { subject, prompts } => run_turns(case, tick, stage, &*subject, prompts).await,
        Played::Session(play) => session::run_session(case, tick, stage, play).await,
    };
    Some(RunObservation {
        next_must: next_ends,
        ..observed?
    })
}

/// Sends the next message to the session in a store.
pub(crate) fn play_next(scenario: &Scenario, log: &Arc<dyn Log>) -> Option<StopReason> {
    clockwork::run(|_| async {
        let stage = RunStage::new(Arc::clone(log));
        match scenario.build(&stage).play {
            Played::Run { subject, .. } => next_of_run(&*subject, None, log).await,
            Played::Session(play) => session::next_of_store(&stage, play, log).await,
        }
    })
}

/// Maximum number of polls of a run. The longest run needs a few thousand polls, so a run that reaches this number is
/// in an endless loop.
const POLLS_MAX: usize = 200_000;

/// Observes the run after each poll of any task, until the run is over and every stop has its answer. Returns true if
/// the run or a stop never ends, or if a planned action is impossible.
///
/// Calls `is_over` until `is_over` returns true, and from then on calls `is_answered`.
pub(super) async fn watch<R: StoppableRun>(
    run: &R,
    stage: &RunStage,
    tick: &Tick,
    mut is_over: impl FnMut(&mut Context<'_>) -> bool,
    is_answered: impl Fn(&mut Context<'_>) -> bool,
) -> bool {
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    let (mut polls, mut over) = (0, false);
    std::future::poll_fn(|cx| {
        if tick.is_one() {
            polls += 1;
            stage.watch.points.reach(Moment::Inside, POLL, "");
        }
        if run.stops().is_impossible() {
            return Poll::Ready(true);
        }
        run.stops().poll_answers(cx);
        if !over && is_over(cx) {
            over = true;
            // A stop can also come after the end of the run.
            stage.watch.points.reach(Moment::After, "run", "");
        }
        run.stops().poll_answers(cx);
        let recovered = stage.store.poll_recovered(cx);
        if over && is_answered(cx) && recovered {
            return Poll::Ready(false);
        }
        if polls > POLLS_MAX {
            return Poll::Ready(true);
        }
        hangs.as_mut().poll(cx).map(|()| true)
    })
    .await
}

/// Time limit of a run on the paused clock. Every run that ends is shorter, so a run that reaches the limit hangs.
pub(super) const HANGS_AFTER: Duration = Duration::from_hours(12);

/// The paused clock advances only if no task has work. So all pending work is done as soon as this time has passed.
const SETTLES: Duration = Duration::from_millis(1);

pub(crate) fn session_id() -> SessionId {
    "explored".into()
}

/// The wall-clock time of all records. Wall-clock time has no meaning in these runs.
pub(super) fn made_at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

/// Sends the next message to the history of the run. If the history no longer exists, resumes the session from the log
/// first.
pub(super) async fn next_of_run(
    subject: &dyn Subject,
    history: Option<RunHistory>,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let session = match history {
        Some(RunHistory::Logged(session)) => *session,
        _ => SessionWriter::resume(Arc::clone(log), session_id(), made_at())
            .await
            .ok()?,
    };
    let (_root, scope) = scopes();
    let mut running = subject.start(SubjectPlay {
        scope,
        session,
        prompts: vec![NEXT_MESSAGE.into()],
        events: EventSink::none(),
        background: None,
    });
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    std::future::poll_fn(|cx| {
        if hangs.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        running.poll_outcome(cx).map(|outcome| {
            let turn = outcome.ok()?.turns.pop()?;
            Some(turn.stop_reason)
        })
    })
    .await
}

/// Sends the next message to the session. If the session is closed, resumes the session from the log first.
pub(super) async fn next_of_session(
    session: Option<&Session>,
    sessions: impl FnOnce() -> Sessions,
) -> Option<StopReason> {
    let message = || NewMessage::from(NEXT_MESSAGE).policy(FollowUp::Enqueue);
    if let Some(session) = session {
        if let Ok(sent) = session.send(message()) {
            let outcome = timeout(HANGS_AFTER, sent.outcome()).await.ok()?;
            return Some(outcome.stop_reason);
        }
        session.close().await;
    }
    let session = sessions().resume(session_id()).await.ok()?;
    let sent = session.send(message()).ok()?;
    let outcome = timeout(HANGS_AFTER, sent.outcome()).await.ok()?;
    session.close().await;
    Some(outcome.stop_reason)
}

/// Observation of a finished run, before the next message is sent.
pub(super) fn observed(
    stage: &RunStage,
    stops: &PlannedStops,
    (over, over_at): (Order, Duration),
    hung: bool,
) -> RunObservation {
    RunObservation {
        is_followed: true,
        is_witnessed: true,
        answered_within: ANSWERED_WITHIN,
        points: stage.watch.points.reached(),
        stops: stops.observed(),
        over,
        over_at,
        hung,
        delivered: stage.witness().notes().delivered,
        own: stage.own.run(),
        ..RunObservation::default()
    }
}

/// Stops everything below these root scopes, and records the remaining work.
pub(super) async fn finish(
    observed: &mut RunObservation,
    stage: &RunStage,
    roots: impl IntoIterator<Item = Scope>,
    works: &[Arc<BackgroundWork>],
) {
    for root in roots {
        let (tasks, work) = leave(root).await;
        observed.tasks_left = observed.tasks_left.max(tasks);
        observed.work_left.extend(work);
    }
    stage.own.run_again(&mut observed.own);
    observed.notes = stage.notes(works);
}

/// Stops all work below the root, and returns the remaining tasks and work.
async fn leave(root: Scope) -> (usize, Vec<String>) {
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    drop(root.stop(order).receipt().await);
    let work_left = root
        .running()
        .iter()
        .map(|item| format!("{} {}", item.kind.as_str(), item.name))
        .collect();
    drop(root);
    (tasks_now().await, work_left)
}

/// Number of tasks that are alive although no scope has work. These tasks were spawned outside of all scopes.
pub(super) async fn tasks_loose(root: &Scope) -> usize {
    let tasks = tasks_now().await;
    if root.running().is_empty() { tasks } else { 0 }
}

/// Number of tasks that are still waiting at a moment when no task has work.
async fn tasks_now() -> usize {
    sleep(SETTLES).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    metrics.num_alive_tasks() - OWN_TASKS
}
