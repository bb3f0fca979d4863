//! After a run: its outcome, its records, and the next message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Agent, EventSink, Run, RunHistory, RunOutcome, RunRequest};
use allstop_core::StopReason;
use allstop_log::session::stream_of;
use allstop_log::{LockAttempt, Log, SessionWriter};
use allstop_scope::FORCE_MAX;
use tokio::time::{sleep, timeout};

use super::real_parts::{GRACE, now, scopes, session_id};
use crate::observe::NEXT_MESSAGE;

/// Time that a machine may add that does many other things at once.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// Longest time that a stop may take.
pub(super) const ANSWERED_WITHIN: Duration = GRACE.saturating_add(FORCE_MAX).saturating_add(SLACK);

/// Limit of a whole run: a hundred times what it takes.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// Interval between two looks at something that sends no event.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The outcome, if somebody is there to get it; an error if there is none in time.
pub(super) async fn outcome(
    run: Option<Run>,
    log: &Arc<dyn Log>,
) -> Result<Option<RunOutcome>, ()> {
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

/// Waits until it is so, or has not become so in time.
pub(super) async fn looked_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < SLACK {
        sleep(LOOK_EVERY).await;
    }
}
