//! One run on real parts, stopped at one moment, and everything that it left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Agent, Background, EventSink, History, Run, RunOutcome, RunRequest, TurnOutcome};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{SessionState, StopPolicy};
use allstop_core::{Cause, CauseKind, Extent, Receipt, SessionId, StopReason, Timestamp};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, SessionStream, SqliteLog, Version};
use allstop_scope::{FORCE_MAX, RootOptions, Scope, ScopeOptions, Stop, StopOrder};
use allstop_tools::BackgroundHost as _;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::place::{PROMPTS, Place};
use super::system;
use super::way::RandomWay;
use crate::explore::NEXT_MESSAGE;

/// How long an ask may take: long enough for a command that listens, shorter than one that does not.
pub(super) const GRACE: Duration = Duration::from_millis(60);

/// What a machine may add that does many other things at once.
const SLACK: Duration = Duration::from_secs(2);

/// The longest that a stop may take.
pub(super) const ANSWERED_WITHIN: Duration = GRACE.saturating_add(FORCE_MAX).saturating_add(SLACK);

/// How long a whole run may take: a hundred times what it takes.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// How often something is looked at that nobody tells of.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What to do in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// When to stop it, and how.
    pub(super) stop: Option<(Duration, RandomWay)>,
    pub(super) stop_policy: StopPolicy,
}

/// The answer to a stop, and what the world was like at that moment.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) extent: Extent,
    pub(super) took: Duration,
    /// `None`: there was none in time.
    pub(super) receipt: Option<Arc<Receipt>>,
    pub(super) running: Vec<String>,
    /// Connections that the server saw open then, or a moment later.
    pub(super) connections: usize,
}

/// What a run left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) plan: Plan,
    /// From its start to its end.
    pub(super) length: Duration,
    pub(super) hung: bool,
    pub(super) answers: Vec<Answered>,
    pub(super) turns: Option<Vec<TurnOutcome>>,
    pub(super) records: Vec<SessionRecord>,
    /// What its own session held, where somebody was there to get it.
    pub(super) state: Option<SessionState>,
    pub(super) next: Option<StopReason>,
    pub(super) records_after_next: Vec<SessionRecord>,
    pub(super) trail: Vec<String>,
    pub(super) requests: Vec<Vec<Value>>,
    /// What was there when everything was stopped and closed.
    pub(super) leftovers: Vec<String>,
}

/// Plays a run to its end.
///
/// # Panics
/// If the system gives no runtime, store or folder.
pub(super) fn play(plan: Plan) -> Left {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("two threads");
    let mut left = runtime.block_on(run(&place, plan));
    let tasks = runtime.block_on(async {
        let metrics = runtime.metrics();
        looked_until(|| metrics.num_alive_tasks() == 0).await;
        metrics.num_alive_tasks()
    });
    runtime.shutdown_timeout(SLACK);
    if tasks > 0 {
        left.leftovers.push(format!("{tasks} tasks"));
    }
    let processes = system::running(&place.mark());
    left.leftovers.extend(processes);
    left.leftovers.extend(system::open_files(place.folder()));
    let connections = place.server.wait_until_blocking(SLACK, |seen| seen.open() == 0);
    if let Err(seen) = connections {
        left.leftovers.push(format!("{} connections", seen.open()));
    }
    left
}

async fn run(place: &Place, plan: Plan) -> Left {
    let store = SqliteLog::open(place.folder().join("sessions.db"));
    let store = Arc::new(store.await.expect("a new store"));
    let log: Arc<dyn Log> = Arc::clone(&store) as _;
    let (root, session_scope) = scopes();
    let background = session_scope.child("session/random/background", ScopeOptions::default());
    let background = Background::new(background.expect("nothing is stopped yet"), 1);
    let deadline = match plan.stop {
        Some((moment, RandomWay::Deadline)) => Some(moment),
        _ => None,
    };
    let agent = place.agent(&background, deadline, plan.stop_policy);
    let session = SessionStream::create(Arc::clone(&log), session_id(), now(), "/random");
    let session = session.await.expect("a new session");
    let request = RunRequest {
        history: History::Logged(Box::new(session)),
        prompts: PROMPTS.map(Arc::from).into(),
        context: None,
        background: Some(Arc::clone(&background)),
    };
    let began = Instant::now();
    let mut run = Some(agent.start(&session_scope, request, EventSink::none()));
    let mut answers = Vec::new();
    if let Some((moment, way)) = plan.stop
        && way != RandomWay::Deadline
    {
        sleep(moment).await;
        let scopes = [&root, &session_scope, &background.scope()];
        answers = stop(place, &mut run, scopes, way).await;
    }
    let outcome = outcome(run, &log).await;
    let length = began.elapsed();
    let records = read_all(&*log).await;
    let hung = outcome.is_err();
    let (turns, history) = match outcome {
        Ok(Some(RunOutcome { turns, history })) => (Some(turns), Some(history)),
        _ => (None, None),
    };
    let session = match history {
        Some(History::Logged(session)) => Some(*session),
        _ => None,
    };
    let state = session.as_ref().map(|session| session.state().clone());
    if let Some(turn) = turns.iter().flatten().last()
        && let Some(receipt) = &turn.receipt
    {
        let receipt = Arc::clone(receipt);
        answers.push(answered(place, Extent::Turn, Duration::ZERO, Some(receipt)).await);
    }
    let next = if hung {
        None
    } else {
        next(&agent, session, &log).await
    };
    let records_after_next = read_all(&*log).await;
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let (took, last) = receipt(root.stop(order)).await;
    answers.push(answered(place, Extent::Process, took, last).await);
    store.close().await;
    Left {
        plan,
        length,
        hung,
        answers,
        turns,
        records,
        state,
        next,
        records_after_next,
        trail: place.trail(),
        requests: place.server.requests().iter().map(|request| request.messages().to_vec()).collect(),
        leftovers: Vec::new(),
    }
}

/// Stops the run in this way, and waits for the answers.
async fn stop(
    place: &Place,
    run: &mut Option<Run>,
    [root, session, background]: [&Scope; 3],
    way: RandomWay,
) -> Vec<Answered> {
    let Some(running) = run.take_if(|_| way == RandomWay::Drop).or(run.as_ref().map(|_| ()).and(None)) else {
        let Some(running) = run.as_ref() else {
            return Vec::new();
        };
        let user = || Cause::new(CauseKind::User);
        let process = |cause| root.stop(StopOrder::new(Extent::Process, Cause::new(cause)));
        let stops: Vec<(Extent, Stop)> = match way {
            RandomWay::Stop(Extent::Process, cause) => vec![(Extent::Process, process(cause))],
            RandomWay::Stop(Extent::Session, cause) => {
                let order = StopOrder::new(Extent::Session, Cause::new(cause));
                vec![(Extent::Session, session.stop(order))]
            }
            RandomWay::Stop(_, cause) => vec![(Extent::Turn, running.stop(Cause::new(cause)))],
            RandomWay::Force(after) => {
                let first = running.stop(user());
                sleep(after).await;
                let order = StopOrder::new(Extent::Turn, user()).grace(Duration::ZERO);
                let second = running.scope().stop(order.bystander(background));
                vec![(Extent::Turn, first), (Extent::Turn, second)]
            }
            RandomWay::Wider(after) => {
                let first = running.stop(user());
                sleep(after).await;
                vec![(Extent::Turn, first), (Extent::Process, process(CauseKind::Shutdown))]
            }
            RandomWay::Drop | RandomWay::Deadline => Vec::new(),
        };
        let mut answers = Vec::new();
        for (extent, stop) in stops {
            let (took, receipt) = receipt(stop).await;
            answers.push(answered(place, extent, took, receipt).await);
        }
        return answers;
    };
    drop(running);
    Vec::new()
}
