//! After the run: the next message, the records, and whether everything leaves.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use allstop_agent::{EventSink, History};
use allstop_core::record::SessionRecord;
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, SessionStream, Version};
use allstop_scope::{Scope, StopOrder};
use tokio::time::sleep;

use super::watch::HANGS_AFTER;
use super::{made_at, session_id};
use crate::explore::NEXT_MESSAGE;
use crate::explore::clockwork::{self, OWN_TASKS};
use crate::explore::scenario::{Played, Scenario};
use crate::explore::session;
use crate::explore::stage::{Stage, scopes};
use crate::explore::subject::{Play, Subject};

/// Time passes only when nothing is left to do: after this everything has happened that was about to.
const SETTLES: Duration = Duration::from_millis(1);

/// Sends the next message to what the run left; where that is gone, to what the log says.
pub(super) async fn next_message(
    subject: &dyn Subject,
    history: Option<History>,
    log: &Arc<dyn Log>,
) -> Option<StopReason> {
    let session = match history {
        Some(History::Logged(session)) => *session,
        _ => SessionStream::resume(Arc::clone(log), session_id(), made_at())
            .await
            .ok()?,
    };
    next(subject, session).await
}

/// Sends the next message to the session that a store holds.
pub(crate) fn play_next(scenario: &Scenario, log: &Arc<dyn Log>) -> Option<StopReason> {
    clockwork::run(|_| async {
        let stage = Stage::new();
        match scenario.build(&stage).play {
            Played::Run { subject, .. } => next_message(&*subject, None, log).await,
            Played::Session(play) => session::play_next(&stage, play, log).await,
        }
    })
}

/// Sends the next message to what is left.
async fn next(subject: &dyn Subject, session: SessionStream) -> Option<StopReason> {
    let (_root, scope) = scopes();
    let mut running = subject.start(Play {
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

/// Stops whatever is there, and says what does not leave.
pub(crate) async fn leave(root: Scope) -> (usize, Vec<String>) {
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown));
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

/// Every record of the session.
pub(crate) async fn read_all(log: &dyn Log) -> Vec<SessionRecord> {
    read_on(log, Vec::new()).await
}

/// The same, where the first ones have been read before.
pub(super) async fn read_on(log: &dyn Log, mut records: Vec<SessionRecord>) -> Vec<SessionRecord> {
    loop {
        let from = Version(records.len() as u64 + 1);
        let read = log
            .read(&stream_of(&session_id()), from, usize::MAX)
            .await
            .expect("the log can be read");
        if read.is_empty() {
            return records;
        }
        records.extend(read.iter().map(|(_, bytes)| {
            decode(bytes)
                .expect("a record can be read")
                .expect("and is of a known type")
        }));
    }
}
