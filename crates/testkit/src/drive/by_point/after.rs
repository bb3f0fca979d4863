//! After a run: the next message, the records, and a check that everything leaves.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use allstop_agent::{EventSink, RunHistory};
use allstop_core::{Cause, CauseKind, Extent, SessionId, StopReason, Timestamp};
use allstop_log::{Log, SessionWriter};
use allstop_scope::{Scope, StopRequest};
use allstop_session::{FollowUp, NewMessage, Session, Sessions};
use tokio::time::{sleep, timeout};

use crate::observe::NEXT_MESSAGE;
use crate::stage::clockwork::OWN_TASKS;
use crate::stage::{Subject, SubjectPlay, scopes};

/// Limit of a run on the paused clock. Nothing that ends takes as long, so whatever does will never end.
pub(super) const HANGS_AFTER: Duration = Duration::from_hours(12);

/// Time passes only when nothing is left to do: after this everything has happened that was about to.
const SETTLES: Duration = Duration::from_millis(1);

pub(crate) fn session_id() -> SessionId {
    "explored".into()
}

/// The wall-clock time of everything: none that counts.
pub(super) fn made_at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

/// Sends the next message to what the run left; where that is gone, to what the log says.
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

/// Sends the next message to the session; where that is closed, to what the log says.
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

/// Stops whatever is there, and says what does not leave.
pub(super) async fn leave(root: Scope) -> (usize, Vec<String>) {
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

/// Tasks that live although nothing runs in any scope: somebody spawned them outside.
pub(super) async fn tasks_loose(root: &Scope) -> usize {
    let tasks = tasks_now().await;
    if root.running().is_empty() { tasks } else { 0 }
}

/// Tasks that wait for something, when nothing is left to do.
async fn tasks_now() -> usize {
    sleep(SETTLES).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    metrics.num_alive_tasks() - OWN_TASKS
}
