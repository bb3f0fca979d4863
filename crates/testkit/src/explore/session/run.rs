//! One run of a session, disturbed at one point in one way, or not at all.

use std::future::Future as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;

use allstop_agent::Settings;
use allstop_core::{StopReason, Timestamp};
use allstop_log::{Log, SessionStream};
use allstop_session::Sessions;
use tokio::time::sleep;

use super::after::{next_message, settle};
use super::aftermath::SessionAftermath;
use super::live::SessionLive;
use super::{SessionPlay, Talk};
use crate::explore::aftermath::Aftermath;
use crate::explore::case::{Case, HANGS_AFTER, POLLS_MAX, leave, read_all, session_id};
use crate::explore::clockwork::Tick;
use crate::explore::point::{Moment, POLL};
use crate::explore::stage::{Stage, scopes};

/// Plays a session. `None`: there was nothing at that point that could be done in that way.
pub(crate) async fn run(
    case: &Case<'_>,
    tick: Tick,
    stage: Stage,
    play: SessionPlay,
    next_must: Option<StopReason>,
) -> Option<Aftermath> {
    prepare(&case.log, &play).await;
    let live = SessionLive::new(&stage, &play, case.told.clone());
    if let Some((point, way)) = case.stop {
        live.plan(point, way);
    }
    let log = stage.log(Arc::clone(&case.log));
    stage.points().open();
    stage.points().reach(Moment::Before, "run", "");
    let sessions = |root| {
        let source = Arc::clone(&play.source) as _;
        Sessions::new(Arc::clone(&log), root, source, play.options.clone())
    };
    // Refused only where all was stopped before.
    let opening = sessions(stage.root().clone());
    let session = stage.store().beside(opening.resume(session_id()));
    let session = session.await.ok();
    let script = session.as_ref().map(|session| {
        live.started(session);
        (play.script)(Talk {
            session: session.clone(),
            live: Arc::clone(&live),
        })
    });
    let hung = until_over(&live, &stage, script, &tick).await;
    let (over, over_at) = (stage.world().now(), stage.points().elapsed());
    stage.points().close();
    if !live.applied() {
        live.let_go();
        return None;
    }
    stage.store().heal();
    if !hung {
        settle().await;
    }
    let mut aftermath = look(&stage, &*case.log, &live).await;
    aftermath.records_before = 1 + play.left_behind.len();
    (aftermath.hung, aftermath.next_must) = (hung, next_must);
    (aftermath.over, aftermath.over_at) = (over, over_at);
    if let (Some(session), Some(seen)) = (&session, &mut aftermath.session) {
        seen.history = session.history().await.ok();
    }
    let (fresh, _) = scopes();
    if !hung {
        aftermath.next = next_message(session.as_ref(), || sessions(fresh.clone())).await;
        if let Some(session) = &session {
            session.close().await;
        }
        aftermath.records_after_next = read_all(&*case.log).await;
    }
    aftermath.requests = stage.world().requests();
    aftermath.lived = stage.world().lived();
    let works = play.source.works();
    let root = stage.root().clone();
    live.let_go();
    drop((session, play, live));
    (aftermath.tasks_left, aftermath.work_left) = leave(root).await;
    let (tasks, work) = leave(fresh).await;
    aftermath.tasks_left = aftermath.tasks_left.max(tasks);
    aftermath.work_left.extend(work);
    stage.own().look_again(&mut aftermath.own);
    stage.processes().bury();
    aftermath.lived = stage.world().lived();
    stage
        .processes()
        .name_background(&works, &mut aftermath.lived);
    Some(aftermath)
}

/// More messages than any scenario sends.
const MESSAGES_BEFORE: u64 = 1_000;

/// Sends the next message to the session that a store holds.
pub(crate) async fn play_next(
    stage: &Stage,
    play: SessionPlay,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let (root, log) = (stage.root().clone(), Arc::clone(log));
    // Those of the process before have the first ids.
    play.messages.store(MESSAGES_BEFORE, Ordering::Relaxed);
    next_message(None, || Sessions::new(log, root, play.source, play.options)).await
}

/// What an earlier process left.
async fn prepare(log: &Arc<dyn Log>, play: &SessionPlay) {
    let at = Timestamp::from_unix_ms(0);
    let stream = SessionStream::create(Arc::clone(log), session_id(), at, "/explored");
    let mut stream = stream.await.expect("a new session");
    if !play.left_behind.is_empty() {
        let records = play.left_behind.clone();
        stream.append(records).await.expect("records that fit");
    }
}

/// Looks after each poll of any task, until the user has done everything and everybody is answered. Whether it hangs.
async fn until_over(
    live: &SessionLive,
    stage: &Stage,
    mut script: Option<futures::future::BoxFuture<'static, ()>>,
    tick: &Tick,
) -> bool {
    use std::task::Poll;
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    let (mut polls, mut over) = (0, false);
    std::future::poll_fn(|cx: &mut Context<'_>| {
        if tick.is_one() {
            polls += 1;
            stage.points().reach(Moment::Inside, POLL, "");
        }
        if live.is_impossible() {
            return Poll::Ready(true);
        }
        live.look(cx);
        if let Some(user) = &mut script
            && user.as_mut().poll(cx).is_ready()
        {
            script = None;
        }
        let recovered = stage.store().poll_recovered(cx);
        live.look(cx);
        if !over && script.is_none() && live.all_answered() {
            over = true;
            // A stop can come after the end too.
            stage.points().reach(Moment::After, "run", "");
            live.look(cx);
        }
        if over && live.all_answered() && recovered {
            return Poll::Ready(false);
        }
        if polls > POLLS_MAX {
            return Poll::Ready(true);
        }
        hangs.as_mut().poll(cx).map(|()| true)
    })
    .await
}

/// What can be seen when the run is over.
async fn look(stage: &Stage, log: &dyn Log, live: &SessionLive) -> Aftermath {
    live.look(&mut Context::from_waker(std::task::Waker::noop()));
    let seen: SessionAftermath = live.seen();
    Aftermath {
        points: stage.points().reached(),
        settings: Settings::default(),
        asked: live.stops(),
        caller_gone: None,
        store_fault: None,
        deadline: None,
        turns: None,
        over: 0,
        over_at: std::time::Duration::ZERO,
        hung: false,
        records_before: 0,
        records: read_all(log).await,
        state: None,
        world: stage.world().clone(),
        lived: Vec::new(),
        events: Vec::new(),
        requests: Vec::new(),
        delivered: stage.world().delivered(),
        reserved_tokens: 0,
        next: None,
        next_must: None,
        records_after_next: Vec::new(),
        tasks_left: 0,
        work_left: Vec::new(),
        processes_left: Vec::new(),
        own: stage.own().look(),
        session: Some(seen),
    }
}
