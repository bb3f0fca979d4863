//! One run of a scenario, stopped at one point in one way, or undisturbed.

mod after;
mod watch;

pub(crate) use after::{leave, play_next, read_all};
pub(crate) use watch::{HANGS_AFTER, POLLS_MAX};

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{History, RunOutcome, Settings};
use allstop_core::{CauseKind, Extent, SessionId, StopReason, Timestamp};
use allstop_log::{Log, SessionStream};
use allstop_scope::{Deadline, Scope, ScopeOptions};
use allstop_tools::BackgroundHost as _;
use tokio::time::Instant;

use super::aftermath::Aftermath;
use super::child_processes::ChildProcesses;
use super::clockwork::{self, Tick};
use super::kill::Notebook;
use super::live::{Ended, Live};
use super::point::{Moment, Point};
use super::scenario::{Played, Scenario, Setup};
use super::session;
use super::stage::Stage;
use super::store::StoreFault;
use super::subject::{Play, Subject};
use super::way::Way;

/// The wall-clock time of everything: none that counts.
fn made_at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

/// One run of a scenario.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) log: Arc<dyn Log>,
    /// Where and how it is stopped.
    pub(crate) stop: Option<(&'a Point, Way)>,
    /// Where what a session's user is told is written down for those who look after a kill.
    pub(crate) told: Option<Arc<Notebook>>,
}

impl Case<'_> {
    fn store_fault(&self) -> Option<StoreFault> {
        match self.stop {
            Some((_, Way::Store(fault))) => Some(fault),
            _ => None,
        }
    }
}

/// Plays a case. `None`: there was nothing at that point that could be stopped in that way.
pub(crate) fn play(case: &Case<'_>) -> Option<Aftermath> {
    let before = ChildProcesses::now();
    let mut played = clockwork::run(|tick| Box::pin(run(case, tick)));
    let left = before.end_newer();
    if let Some(aftermath) = &mut played {
        aftermath.store_fault = case.store_fault();
        aftermath.processes_left = left;
    }
    played
}

async fn run(case: &Case<'_>, tick: Tick) -> Option<Aftermath> {
    let stage = Stage::new();
    let Setup { play, next_ends } = case.scenario.build(&stage);
    match play {
        Played::Run { subject, prompts } => {
            run_once(case, tick, stage, &*subject, prompts, next_ends).await
        }
        Played::Session(play) => session::run(case, tick, stage, play, next_ends).await,
    }
}

async fn run_once(
    case: &Case<'_>,
    tick: Tick,
    stage: Stage,
    subject: &dyn Subject,
    prompts: Vec<Arc<str>>,
    next_must: Option<StopReason>,
) -> Option<Aftermath> {
    let log = stage.log(Arc::clone(&case.log));
    let live = Live::new(&stage);
    if let Some((point, way)) = case.stop {
        live.plan(stage.points(), point, way);
    }
    let deadline = match case.stop {
        Some((point, Way::Deadline)) => Some(point.at),
        _ => None,
    };
    let session = SessionStream::create(Arc::clone(&log), session_id(), made_at(), "/explored");
    let session = session.await.expect("a new session");
    stage.points().open();
    stage.points().reach(Moment::Before, "run", "");
    live.started(subject.start(Play {
        scope: below(stage.session_scope(), &stage, deadline),
        session,
        prompts,
        events: watch::observer(&stage),
        background: Some(Arc::clone(stage.background())),
    }));
    stage.points().reach(Moment::After, "start", "");
    let ended = watch::until_over(&live, &stage, &log, &tick).await;
    // A run that knows that it cannot be done in time ends before its deadline, which then has stopped nothing.
    let in_time = deadline.is_none_or(|deadline| ended.over_at >= deadline);
    let applied = live.applied() && in_time;
    stage.points().close();
    if !applied {
        return None;
    }
    stage.store().heal();
    let (mut aftermath, history) =
        look(case, &stage, &live, subject.settings().clone(), ended).await;
    (aftermath.deadline, aftermath.next_must) = (deadline, next_must);
    let tasks_loose = after::tasks_loose(stage.root()).await;
    if !aftermath.hung {
        // Whoever has lost the lease has no session any more: its successor begins with what is in the log.
        let lease_lost = matches!(case.stop, Some((_, Way::Stop(_, CauseKind::LeaseLost))));
        let history = history.filter(|_| !lease_lost);
        aftermath.next = after::next_message(subject, history, &log).await;
        aftermath.records_after_next = after::read_on(&*case.log, aftermath.records.clone()).await;
    }
    aftermath.requests = stage.world().requests();
    let root = stage.root().clone();
    drop(live);
    (aftermath.tasks_left, aftermath.work_left) = after::leave(root).await;
    aftermath.tasks_left = aftermath.tasks_left.max(tasks_loose);
    stage.own().look_again(&mut aftermath.own);
    stage.processes().bury();
    aftermath.lived = stage.world().lived();
    stage
        .processes()
        .name_background(&stage.background().works(), &mut aftermath.lived);
    Some(aftermath)
}

/// What can be seen when the run is over, and what the session goes on with.
async fn look(
    case: &Case<'_>,
    stage: &Stage,
    live: &Live,
    settings: Settings,
    ended: Ended,
) -> (Aftermath, Option<History>) {
    let own = stage.own().look();
    let (turns, history) = match ended.outcome {
        Some(RunOutcome { turns, history }) => (Some(turns), Some(history)),
        None => (None, None),
    };
    let folded = history.as_ref().and_then(|history| match history {
        History::Logged(session) => Some(session.state().clone()),
        History::Bare { .. } => None,
    });
    let budget = settings.budget.as_ref();
    let aftermath = Aftermath {
        points: stage.points().reached(),
        reserved_tokens: budget.map_or(0, |budget| budget.reserved_tokens()),
        settings,
        asked: live.asked(),
        caller_gone: live.caller_gone(),
        store_fault: None,
        deadline: None,
        turns,
        over: ended.over,
        over_at: ended.over_at,
        hung: ended.hung,
        // The session's own.
        records_before: 1,
        records: after::read_all(&*case.log).await,
        state: folded,
        world: stage.world().clone(),
        lived: Vec::new(),
        events: stage.world().events(),
        requests: Vec::new(),
        delivered: stage.world().delivered(),
        next: None,
        next_must: None,
        records_after_next: Vec::new(),
        tasks_left: 0,
        work_left: Vec::new(),
        processes_left: Vec::new(),
        own,
        session: None,
    };
    (aftermath, history)
}

pub(crate) fn session_id() -> SessionId {
    "explored".into()
}

/// The scope of the run: with a deadline, if that is the way to stop it.
fn below(session: &Scope, stage: &Stage, deadline: Option<Duration>) -> Scope {
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
    let options = ScopeOptions {
        deadline: Some(deadline),
        ..ScopeOptions::default()
    };
    session
        .child("session/explored/deadline", options)
        .unwrap_or_else(|_| session.clone())
}
