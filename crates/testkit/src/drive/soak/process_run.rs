//! One process run: a simulated process with all its sessions, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, Timestamp};
use allstop_log::Version;
use allstop_scope::{RootOptions, Scope, StopRequest};
use allstop_session::{MessageHandle, Session, SessionEventKind, Sessions, Subscription};
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::SoakState;
use super::parts::sessions;
use super::session_removal::{KeptSession, check_and_replace, is_quiet};

/// Maximum number of actions in one process run.
const ACTIONS_PER_PROCESS_RUN: u64 = 300;

/// Number of messages after which a session is checked, removed, and replaced by a new one.
const MESSAGES_PER_SESSION: u64 = 24;

/// Time limit in which stopped work must end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A session in a process run.
pub(super) struct SoakSession {
    pub(super) session: Session,
    /// Messages without a known outcome. Each has the number of clock jumps that had occurred when the message was
    /// sent.
    pub(super) sent: Vec<(u64, MessageHandle)>,
    /// Subscriber that reads at intervals, and must receive every durable record.
    reader: Subscription,
    read: Version,
    /// Subscriber that never reads.
    _stalled: Subscription,
}

/// Plays one process run. Returns true if the process run ended by a crash.
pub(super) async fn play(state: &mut SoakState) -> bool {
    let began = Instant::now();
    let root = Scope::root("process", with_clock(&state.clock));
    let sessions = sessions(state, &root);
    let mut opened = Vec::new();
    for kept in 0..state.sessions.len() {
        match open(state, &sessions, kept).await {
            Ok(session) => opened.push(session),
            Err(wrong) => {
                state.broken(format!("a session does not open: {wrong}"));
                return false;
            }
        }
    }
    let actions = 1 + state.random.below(ACTIONS_PER_PROCESS_RUN);
    for _ in 0..actions {
        let number = state.random.below(opened.len() as u64) as usize;
        let Some(session) = opened.get_mut(number) else {
            continue;
        };
        state.actions += 1;
        state.act(number, session).await;
        collect(state, number, session);
        if !state.report.is_clean() {
            return false;
        }
    }
    *state.figure("simulated seconds") += began.elapsed().as_secs();
    if state.random.below(3) == 0 {
        return true;
    }
    end(state, opened, &sessions, &root).await;
    false
}

fn with_clock(clock: &Arc<AtomicI64>) -> RootOptions {
    let mut options = RootOptions::single_runtime();
    let clock = Arc::clone(clock);
    options.now = Arc::new(move || Timestamp::from_unix_ms(clock.fetch_add(1, Ordering::Relaxed)));
    options
}

pub(super) async fn open(
    state: &mut SoakState,
    sessions: &Sessions,
    number: usize,
) -> Result<SoakSession, String> {
    let Some(kept) = state.sessions.get_mut(number) else {
        return Err("there is none".to_owned());
    };
    let id = kept.id.clone();
    let opening = async {
        if kept.is_made {
            sessions.resume(id).await
        } else {
            sessions.create(Some(id), "/soak").await
        }
    };
    let session = timeout(ENDS_WITHIN, opening)
        .await
        .map_err(|_| "it does not open".to_owned())?
        .map_err(|error| error.to_string())?;
    kept.is_made = true;
    Ok(SoakSession {
        reader: session.subscribe(Some(Version(1))),
        _stalled: session.subscribe(None),
        sent: Vec::new(),
        read: Version(0),
        session,
    })
}

/// Stores the available outcomes, and reads the available events.
pub(super) fn collect(state: &mut SoakState, number: usize, opened: &mut SoakSession) {
    let jumps = *state.figure("jumps of the clock");
    if let Some(kept) = state.sessions.get_mut(number) {
        opened.sent.retain(|(at, sent)| match sent.try_outcome() {
            None => true,
            Some(outcome) => {
                kept.came_to(&sent.id, &outcome, *at != jumps);
                false
            }
        });
    }
    while let Some(Ok(Some(event))) = opened.reader.next().now_or_never() {
        let SessionEventKind::Recorded { version, .. } = event.kind else {
            continue;
        };
        if version != opened.read.next() {
            state.broken(format!(
                "record {version:?} is given after {:?}",
                opened.read
            ));
        }
        opened.read = version;
    }
}

/// Ends a process run without a crash: closes everything, and checks that every message has its outcome.
async fn end(state: &mut SoakState, opened: Vec<SoakSession>, sessions: &Sessions, root: &Scope) {
    for (number, mut session) in opened.into_iter().enumerate() {
        let closed = timeout(ENDS_WITHIN, session.session.close()).await;
        collect(state, number, &mut session);
        let Ok(receipt) = closed else {
            state.broken(format!("{} does not close", session.session.id()));
            return;
        };
        if !is_quiet(state, number, &receipt).await {
            state.broken(format!(
                "{} is closed and not quiet: {receipt:?}",
                session.session.id()
            ));
        }
        if let Some((_, sent)) = session.sent.first() {
            state.broken(format!("{} came to nothing", sent.id));
        }
        drop(session);
        let long = |kept: &KeptSession| kept.messages >= MESSAGES_PER_SESSION;
        if state.sessions.get(number).is_some_and(long) {
            check_and_replace(state, number, sessions).await;
        }
    }
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = root.stop(order).receipt().await;
    if !receipt.quiet() || !root.running().is_empty() {
        state.broken(format!("the process is not quiet: {receipt:?}"));
    }
    sleep(Duration::from_secs(1)).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    if tasks > 0 {
        state.broken(format!("{tasks} tasks are left"));
    }
}
