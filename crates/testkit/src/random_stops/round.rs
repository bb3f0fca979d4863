//! One run on real parts, stopped at one moment, and everything that it left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Background, EventSink, History, RunOutcome, RunRequest, TurnOutcome};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{SessionState, StopPolicy};
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_log::{Log, SessionStream, SqliteLog};
use allstop_scope::{ScopeOptions, StopOrder};
use allstop_tools::BackgroundHost as _;
use serde_json::Value;
use tokio::time::sleep;

use super::after::{looked_until, next, outcome, read_all};
use super::answer::{Answered, SLACK, answer, look, stop};
use super::place::{PROMPTS, Place, now, scopes, session_id};
use super::system;
use super::way::RandomWay;

/// What to do in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// When to stop it, and how.
    pub(super) stop: Option<(Duration, RandomWay)>,
    pub(super) stop_policy: StopPolicy,
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
