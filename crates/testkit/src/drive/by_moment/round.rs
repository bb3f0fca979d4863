//! One run with real parts that is stopped at one moment, and the observation of everything that remains.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{
    Agent, EventSink, Run, RunHistory, RunOutcome, RunRequest, SessionBackground, Settings,
};
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_log::session::stream_of;
use allstop_log::{LockAttempt, Log, SessionWriter, SqliteLog};
use allstop_scope::{FORCE_MAX, Scope, ScopeOptions, Stop, StopRequest};
use allstop_tools::BackgroundHost as _;
use tokio::time::{sleep, timeout};

use super::real_parts::{GRACE, PROMPTS, RealParts, now, scopes, session_id};
use super::real_parts::{observe_machine, open_files, running};
use crate::drive::read_all;
use crate::observe::{
    Disturbance, MachineSnapshot, NEXT_MESSAGE, ObservedStop, RunObservation, StopAnswer,
    WitnessNotes,
};
use crate::stop_method::StopMethod;

/// Plan of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedRound {
    /// Moment and method of the stop. If the method has a second stop, the method contains the milliseconds between the
    /// two stops.
    pub(super) stop: Option<(Duration, StopMethod)>,
    pub(super) stop_policy: StopPolicy,
}

impl PlannedRound {
    /// Name of the method, without its times.
    pub(super) fn name(&self) -> String {
        let method = self.stop.map(|(_, method)| method.to_string());
        let method = method.unwrap_or_else(|| "no stop".to_owned());
        method.split('+').next().unwrap_or_default().to_owned()
    }
}

/// Plays a run to its end.
///
/// # Panics
/// Panics if the system provides no runtime, store or folder.
pub(super) fn play(planned: &PlannedRound) -> RunObservation {
    let parts = RealParts::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("two threads");
    let mut observed = runtime.block_on(run(&parts, *planned));
    observed.tasks_left = runtime.block_on(async {
        let metrics = runtime.metrics();
        looked_until(|| metrics.num_alive_tasks() == 0).await;
        metrics.num_alive_tasks()
    });
    runtime.shutdown_timeout(SLACK);
    let left = &mut observed.work_left;
    left.extend(running(&parts.mark()));
    left.extend(open_files(parts.folder()));
    let connections = parts
        .server
        .wait_until_blocking(SLACK, |seen| seen.open() == 0);
    if let Err(seen) = connections {
        left.push(format!("{} connections", seen.open()));
    }
    observed
}

/// Stops of a run and their answers.
struct AnsweredStops<'a> {
    parts: &'a RealParts,
    began: Instant,
    stops: Vec<ObservedStop>,
    snapshots: Vec<MachineSnapshot>,
}

impl AnsweredStops<'_> {
    /// Stops the run at the planned moment, or drops the future of the run, so that no caller waits for the run any
    /// more.
    async fn disturb(
        &mut self,
        run: &mut Option<Run>,
        scopes: [&Scope; 3],
        planned: &PlannedRound,
    ) -> Option<Disturbance> {
        let (moment, method) = planned.stop?;
        if method == StopMethod::Deadline {
            return None;
        }
        sleep(moment).await;
        if method == StopMethod::Drop {
            drop(run.take());
            return Some(Disturbance {
                cause: Cause::new(CauseKind::Disconnect),
                point: Some(0),
                accepted: Some(0),
                at: self.began.elapsed(),
            });
        }
        self.stop(run.as_ref()?, scopes, method).await;
        None
    }

    /// Stops the run by this method, and waits for the answers.
    async fn stop(&mut self, run: &Run, [root, session, background]: [&Scope; 3], by: StopMethod) {
        let order =
            |extent, cause| StopRequest::new(extent, Cause::new(cause)).bystander(background);
        let user = || order(Extent::Turn, CauseKind::User);
        let stop = |order: StopRequest| match order.extent {
            Extent::Process => root.stop(order),
            Extent::Session => session.stop(order),
            _ => run.scope().stop(order),
        };
        let (first, second) = match by {
            StopMethod::Stop(extent, cause) => (order(extent, cause), None),
            StopMethod::Force(after) => (user(), Some((after, user().grace(Duration::ZERO)))),
            StopMethod::Wider(after) => {
                let all = order(Extent::Process, CauseKind::Shutdown);
                (user(), Some((after, all)))
            }
            _ => return,
        };
        let asked = self.began.elapsed();
        let mut stops = vec![stop(first)];
        if let Some((after_ms, second)) = second {
            sleep(Duration::from_millis(after_ms.into())).await;
            stops.push(stop(second));
        }
        for stop in stops {
            let answered = self.answer(&stop, asked).await;
            self.stops.push(answered);
        }
    }

    /// Waits for the answer, and then observes the machine.
    async fn answer(&mut self, stop: &Stop, asked: Duration) -> ObservedStop {
        let receipt = timeout(ANSWERED_WITHIN, stop.receipt()).await.ok();
        let at = self.began.elapsed();
        let request = stop.request();
        self.snapshots
            .push(observe_machine(self.parts, request.extent, receipt.clone()).await);
        ObservedStop {
            extent: request.extent,
            cause: request.cause.clone(),
            point: 0,
            accepted: 0,
            at: asked,
            answer: receipt.map(|receipt| StopAnswer {
                receipt,
                order: 0,
                at,
            }),
        }
    }
}

async fn run(parts: &RealParts, planned: PlannedRound) -> RunObservation {
    let store = SqliteLog::open(parts.folder().join("sessions.db"));
    let store = Arc::new(store.await.expect("a new store"));
    let log: Arc<dyn Log> = Arc::clone(&store) as _;
    let (root, session_scope) = scopes();
    let background = session_scope.child("session/random/background", ScopeOptions::default());
    let background = SessionBackground::new(
        background.expect("nothing is stopped yet"),
        1,
        Box::new(Vec::new),
    );
    let deadline = match planned.stop {
        Some((moment, StopMethod::Deadline)) => Some(moment),
        _ => None,
    };
    let agent = parts.agent(&background, deadline, planned.stop_policy);
    let session = SessionWriter::create(Arc::clone(&log), session_id(), now(), "/random", None);
    let session = session.await.expect("a new session");
    let request = RunRequest::of_prompts(RunHistory::Logged(Box::new(session)), PROMPTS)
        .background(Arc::clone(&background));
    let began = Instant::now();
    let mut run = Some(agent.start(&session_scope, request, EventSink::none()));
    let mut answered = AnsweredStops {
        parts,
        began,
        stops: Vec::new(),
        snapshots: Vec::new(),
    };
    let scopes = [&root, &session_scope, &background.scope()];
    let caller_gone = answered.disturb(&mut run, scopes, &planned).await;
    let outcome = outcome(run, &log).await;
    let over_at = began.elapsed();
    let records = read_all(&*log, &session_id()).await;
    let hung = outcome.is_err();
    let (turns, history) = match outcome {
        Ok(Some(RunOutcome { turns, history })) => (Some(turns), Some(history)),
        _ => (None, None),
    };
    let session = match history {
        Some(RunHistory::Logged(session)) => Some(*session),
        _ => None,
    };
    let state = session.as_ref().map(|session| session.state().clone());
    let last = turns.iter().flatten().last();
    if let Some(receipt) = last.and_then(|turn| turn.receipt.clone()) {
        let snapshot = observe_machine(parts, Extent::Turn, Some(receipt)).await;
        answered.snapshots.push(snapshot);
    }
    let next = if hung {
        None
    } else {
        // The deadline of this run does not apply to the next run.
        let agent = match deadline {
            Some(_) => parts.agent(&background, None, planned.stop_policy),
            None => agent.clone(),
        };
        next(&agent, session, &log).await
    };
    let records_after_next = read_all(&*log, &session_id()).await;
    let asked = began.elapsed();
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let last_stop = answered.answer(&root.stop(order), asked).await;
    store.close().await;
    RunObservation {
        is_followed: true,
        settings: Settings::default().stop_policy(planned.stop_policy),
        answered_within: ANSWERED_WITHIN,
        stops: answered.stops,
        last_stop: Some(last_stop),
        snapshots: answered.snapshots,
        caller_gone,
        deadline,
        turns,
        over_at,
        hung,
        records,
        state,
        next,
        next_must: Some(StopReason::Completed),
        records_after_next,
        effects: parts.effects(),
        notes: WitnessNotes {
            requests: parts.requests(),
            ..WitnessNotes::default()
        },
        ..RunObservation::default()
    }
}

/// Extra time for a machine that is busy with other programs.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// Maximum time from a stop to its answer.
pub(super) const ANSWERED_WITHIN: Duration = GRACE.saturating_add(FORCE_MAX).saturating_add(SLACK);

/// Time limit of a whole run: a hundred times its usual length.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// Interval between two checks of a condition that sends no event.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits for the outcome of the run. `None` if the caller no longer waits; an error if the run does not end in time.
pub(super) async fn outcome(
    run: Option<Run>,
    log: &Arc<dyn Log>,
) -> Result<Option<RunOutcome>, ()> {
    if let Some(run) = run {
        let outcome = timeout(HANGS_AFTER, run.finish()).await;
        return outcome.map_err(drop)?.map(Some).map_err(drop);
    }
    // An engine (the task of a run) whose caller is gone unlocks the session after the engine has ended.
    let began = Instant::now();
    while began.elapsed() < ANSWERED_WITHIN {
        if let Ok(LockAttempt::Locked(_)) = log.try_lock(&stream_of(&session_id())).await {
            return Ok(None);
        }
        sleep(LOOK_EVERY).await;
    }
    Err(())
}

/// Sends the next message to the session after the stop.
pub(super) async fn next(
    agent: &Agent,
    session: Option<SessionWriter>,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let session = match session {
        Some(session) => session,
        None => SessionWriter::resume(Arc::clone(log), session_id(), now())
            .await
            .ok()?,
    };
    let (_root, scope) = scopes();
    let request = RunRequest::new(RunHistory::Logged(Box::new(session)), NEXT_MESSAGE);
    let run = agent.start(&scope, request, EventSink::none());
    let outcome = timeout(HANGS_AFTER, run.finish()).await.ok()?.ok()?;
    outcome.turns.last().map(|turn| turn.stop_reason)
}

/// Waits until the condition is true, or until the time limit has passed.
pub(super) async fn looked_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < SLACK {
        sleep(LOOK_EVERY).await;
    }
}
