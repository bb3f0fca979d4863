//! One run on real parts, stopped at one moment, and everything that it left.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use allstop_agent::{
    Agent, Background, EventSink, History, Run, RunOutcome, RunRequest, TurnOutcome,
};
use allstop_core::receipt::{ItemState, Verified};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{SessionState, StopPolicy};
use allstop_core::{Cause, CauseKind, Extent, Receipt, SessionId, StopReason, Timestamp};
use allstop_log::session::{decode, stream_of};
use allstop_log::{LockAttempt, Log, SessionStream, SqliteLog, Version};
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
    let connections = place
        .server
        .wait_until_blocking(SLACK, |seen| seen.open() == 0);
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
        prompts: PROMPTS.map(Into::into).into(),
        controls: Arc::default(),
        decision: None,
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
        match &run {
            _ if way == RandomWay::Drop => drop(run.take()),
            Some(run) => {
                let scopes = [&root, &session_scope, &background.scope()];
                answers = stop(place, run, scopes, way).await;
            }
            None => {}
        }
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
        let receipt = Some(Arc::clone(receipt));
        answers.push(look(place, Extent::Turn, Duration::ZERO, receipt).await);
    }
    let next = if hung {
        None
    } else {
        // The deadline of the run is not that of the next.
        let agent = match deadline {
            Some(_) => place.agent(&background, None, plan.stop_policy),
            None => agent.clone(),
        };
        next(&agent, session, &log).await
    };
    let records_after_next = read_all(&*log).await;
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    answers.push(answer(place, &root.stop(order)).await);
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
        requests: place
            .server
            .requests()
            .iter()
            .map(|request| request.messages().to_vec())
            .collect(),
        leftovers: Vec::new(),
    }
}

/// Stops the run in this way, and waits for the answers.
async fn stop(
    place: &Place,
    run: &Run,
    [root, session, background]: [&Scope; 3],
    way: RandomWay,
) -> Vec<Answered> {
    let order = |extent, cause| StopOrder::new(extent, Cause::new(cause)).bystander(background);
    let turn = |cause| run.scope().stop(order(Extent::Turn, cause));
    let stops: Vec<Stop> = match way {
        RandomWay::Stop(Extent::Process, cause) => vec![root.stop(order(Extent::Process, cause))],
        RandomWay::Stop(Extent::Session, cause) => {
            vec![session.stop(order(Extent::Session, cause))]
        }
        RandomWay::Stop(_, cause) => vec![turn(cause)],
        RandomWay::Force(after) => {
            let first = turn(CauseKind::User);
            sleep(after).await;
            let second = order(Extent::Turn, CauseKind::User).grace(Duration::ZERO);
            vec![first, run.scope().stop(second)]
        }
        RandomWay::Wider(after) => {
            let first = turn(CauseKind::User);
            sleep(after).await;
            let second = order(Extent::Process, CauseKind::Shutdown);
            vec![first, root.stop(second)]
        }
        RandomWay::Drop | RandomWay::Deadline => Vec::new(),
    };
    let mut answers = Vec::new();
    for stop in stops {
        answers.push(answer(place, &stop).await);
    }
    answers
}

/// Waits for the answer, and looks at the world then.
async fn answer(place: &Place, stop: &Stop) -> Answered {
    let asked = Instant::now();
    let receipt = timeout(ANSWERED_WITHIN, stop.receipt()).await.ok();
    let took = asked.elapsed();
    look(place, stop.request().extent, took, receipt).await
}

async fn look(
    place: &Place,
    extent: Extent,
    took: Duration,
    receipt: Option<Arc<Receipt>>,
) -> Answered {
    let running = system::running(&place.mark());
    let closed_a_connection = receipt
        .iter()
        .flat_map(|receipt| receipt.items())
        .any(|item| match &item.state {
            // Of a call that was not sent yet the connection may be there, unused since the last one.
            ItemState::Stopped { evidence, .. } => evidence.proof() == Some(Verified::SocketClosed),
            _ => false,
        });
    let connections = if closed_a_connection {
        // What one end has closed the other hears of a moment later.
        let seen = place
            .server
            .wait_until(SLACK, |seen| seen.open() == 0)
            .await;
        seen.map_or_else(|seen| seen.open(), |_| 0)
    } else {
        0
    };
    Answered {
        extent,
        took,
        receipt,
        running,
        connections,
    }
}

/// The outcome, if somebody is there to get it; an error if there is none in time.
async fn outcome(run: Option<Run>, log: &Arc<dyn Log>) -> Result<Option<RunOutcome>, ()> {
    if let Some(run) = run {
        let outcome = timeout(HANGS_AFTER, run.finish()).await;
        return outcome.map_err(drop)?.map(Some).map_err(drop);
    }
    // An engine whose caller has gone lets go of the session when it has ended.
    let began = Instant::now();
    while began.elapsed() < ANSWERED_WITHIN {
        if let Ok(LockAttempt::Locked(_)) = log.try_lock(&stream_of(&session_id())).await {
            return Ok(None);
        }
        sleep(LOOK_EVERY).await;
    }
    Err(())
}

/// Sends the next message to what is left.
async fn next(
    agent: &Agent,
    session: Option<SessionStream>,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let session = match session {
        Some(session) => session,
        None => SessionStream::resume(Arc::clone(log), session_id(), now())
            .await
            .ok()?,
    };
    let (_root, scope) = scopes();
    let request = RunRequest::new(History::Logged(Box::new(session)), NEXT_MESSAGE);
    let run = agent.start(&scope, request, EventSink::none());
    let outcome = timeout(HANGS_AFTER, run.finish()).await.ok()?.ok()?;
    outcome.turns.last().map(|turn| turn.stop_reason)
}

/// Waits until it is so, or has not become so in time.
async fn looked_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < SLACK {
        sleep(LOOK_EVERY).await;
    }
}

/// A process with one session in it.
fn scopes() -> (Scope, Scope) {
    let mut options = RootOptions::current();
    options.grace = GRACE;
    let root = Scope::root("process", options);
    let session = root.child("session/random", ScopeOptions::default());
    (root, session.expect("nothing is stopped yet"))
}

fn session_id() -> SessionId {
    "random".into()
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Every record of the session.
async fn read_all(log: &dyn Log) -> Vec<SessionRecord> {
    let read = log.read(&stream_of(&session_id()), Version(1), usize::MAX);
    let read = read.await.expect("the log can be read");
    let records = read.iter().map(|(_, bytes)| decode(bytes));
    records
        .map(|record| {
            record
                .expect("a record can be read")
                .expect("of a known type")
        })
        .collect()
}
