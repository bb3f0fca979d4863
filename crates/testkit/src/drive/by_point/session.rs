//! One run of a session, undisturbed, or disturbed at one point of the run by one stop method.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::Duration;

use allstop_core::StopReason;
use allstop_log::{Log, SessionWriter};
use allstop_session::Sessions;
use tokio::time::sleep;

use super::case::{Case, finish, made_at, next_of_session, observed, session_id, watch};
use crate::drive::read_all;
use crate::observe::{Moment, RunObservation};
use crate::stage::clockwork::Tick;
use crate::stage::{RunStage, ScriptedUser, SessionPlay, StoppableRun as _, plan, scopes};

/// A time that is longer than all work that the owner of the session does by itself after a turn.
const SETTLES: Duration = Duration::from_millis(200);

/// Number that is higher than the number of messages in any scenario.
const MESSAGES_BEFORE: u64 = 1_000;

/// Plays a session. `None` if this method cannot do anything at this point.
pub(super) async fn run_session(
    case: &Case<'_>,
    tick: Tick,
    stage: RunStage,
    play: SessionPlay,
) -> Option<RunObservation> {
    prepare(&case.log, &play).await;
    let live = play.begin(&stage, case.journal.clone());
    if let Some((point, method)) = case.stop {
        plan(&live, point, method);
    }
    let log: Arc<dyn Log> = Arc::clone(&stage.store.log) as _;
    stage.watch.points.open();
    stage.watch.points.reach(Moment::Before, "run", "");
    let sessions = |root| {
        let source = Arc::clone(&play.source) as _;
        Sessions::new(Arc::clone(&log), root, source, play.options.clone())
    };
    // Opening a session fails only if the root scope was already stopped.
    let opening = sessions(stage.root.clone());
    let session = stage.store.beside(opening.resume(session_id()));
    let session = session.await.ok();
    let mut script = session.as_ref().map(|session| {
        live.started(session);
        (play.script)(ScriptedUser {
            session: session.clone(),
            live: Arc::clone(&live),
        })
    });
    let is_over = |cx: &mut Context<'_>| {
        live.poll_all(cx);
        if script
            .as_mut()
            .is_some_and(|user| user.as_mut().poll(cx).is_ready())
        {
            script = None;
        }
        live.poll_all(cx);
        script.is_none() && live.all_answered()
    };
    let is_answered = |cx: &mut Context<'_>| {
        live.poll_all(cx);
        live.all_answered()
    };
    let hung = watch(&*live, &stage, &tick, is_over, is_answered).await;
    drop(script);
    let (over, over_at) = (stage.witness().now(), stage.watch.points.elapsed());
    stage.watch.points.close();
    if !live.stops().applied() {
        live.clear();
        return None;
    }
    stage.store.log.heal();
    if !hung {
        // During this sleep, work runs that the session starts by itself after a turn.
        sleep(SETTLES).await;
    }
    live.poll_all(&mut Context::from_waker(std::task::Waker::noop()));
    let mut seen = live.seen();
    let observed = observed(&stage, live.stops(), (over, over_at), hung);
    let mut observed = RunObservation {
        delivered_facts: Some(live.delivered_facts()),
        records_before: 1 + play.earlier_records.len(),
        records: read_all(&*case.log, &session_id()).await,
        ..observed
    };
    if let Some(session) = &session {
        seen.history = session.history().await.ok();
    }
    observed.session = Some(seen);
    let (fresh, _) = scopes();
    if !hung {
        observed.next = next_of_session(session.as_ref(), || sessions(fresh.clone())).await;
        if let Some(session) = &session {
            session.close().await;
        }
        observed.records_after_next = read_all(&*case.log, &session_id()).await;
    }
    let works = play.source.works();
    let root = stage.root.clone();
    live.clear();
    drop((session, play, live));
    finish(&mut observed, &stage, [root, fresh], &works).await;
    Some(observed)
}

/// Sends the next message to the session in a store.
pub(super) async fn next_of_store(
    stage: &RunStage,
    play: SessionPlay,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let (root, log) = (stage.root.clone(), Arc::clone(log));
    // The messages of the earlier process have the lowest ids.
    play.messages.store(MESSAGES_BEFORE, Ordering::Relaxed);
    next_of_session(None, || Sessions::new(log, root, play.source, play.options)).await
}

/// Writes the records of an earlier process.
async fn prepare(log: &Arc<dyn Log>, play: &SessionPlay) {
    let stream = SessionWriter::create(Arc::clone(log), session_id(), made_at(), "/explored", None);
    let mut stream = stream.await.expect("a new session");
    if !play.earlier_records.is_empty() {
        let records = play.earlier_records.clone();
        stream.append(records).await.expect("records that fit");
    }
}
