//! Orphaned calls: calls of a session whose processes run although their owner (the Allstop process of the session) and
//! their keeper have ended. SIGKILL of both causes them. The next open of the session records them as background work, so
//! that all stops, lists and receipts of background work cover them.
//!
//! A process belongs to an orphaned call of a session only if all of the following is certain:
//! 1. The process belongs to the user of this process, and its marker names the session.
//! 2. The marker names an owner that the log of the session contains, and this owner has ended. A session with an equal
//!    id in another store has other owners.
//! 3. The log contains no background work with the marker.
//!
//! Each marker is one piece of work, because each call has its own marker.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::ItemKind;
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::{RecordedWork, SessionState, TurnSummary};
use allstop_core::{CallId, SessionId};
use allstop_log::{SessionError, SessionWriter};
use allstop_process::{
    MarkedProcess, is_alive, is_of_this_boot, is_out_of_view, marked_processes, this_process,
};
use allstop_scope::{Scope, WorkSpec};
use allstop_tools::command_name;
use tokio::time::{Instant, timeout};

use crate::call_marker::CallMarker;
use crate::orphan_scan::{OrphanedWork, next_number};

/// Maximum wait for living keepers without progress. A keeper kills the processes of a dead owner within milliseconds.
/// A suspended keeper kills none, so its calls count as orphaned after this time.
const KEEPER_IDLE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait for living keepers. Keepers end a thousand processes in less than two seconds.
const KEEPERS_MAX: Duration = Duration::from_secs(4);
/// Pause between two searches during [`KEEPERS_MAX`].
const SEARCH_AGAIN: Duration = Duration::from_millis(10);
/// Maximum time of one search. A search takes milliseconds, unless the memory of many processes is locked.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// Processes of calls whose owner has ended, as one search of `/proc` has found them.
#[derive(Debug, Default)]
pub struct CallProcesses(HashMap<SessionId, Vec<MarkedProcess>>);

impl CallProcesses {
    /// Searches the running processes of this user. The search reads `/proc`, which may block.
    pub fn find() -> Self {
        Self::of(marked_processes(|marker| {
            CallMarker::parse(marker).is_some()
        }))
    }

    fn of(found: Vec<MarkedProcess>) -> Self {
        let mut sessions = HashMap::<_, Vec<_>>::new();
        for process in found {
            let marker = CallMarker::parse(&process.marker);
            if let Some(marker) = marker.filter(|marker| !marker.owner_lives()) {
                sessions.entry(marker.session).or_default().push(process);
            }
        }
        Self(sessions)
    }

    /// Markers of the running processes of a session.
    pub fn markers(&self, session: &SessionId) -> impl Iterator<Item = &Arc<str>> {
        let processes = self.0.get(session).into_iter().flatten();
        processes.map(|process| &process.marker)
    }

    /// True if orphaned calls of the session run, or processes that a keeper is about to end.
    pub fn has_orphans(&self, state: &SessionState) -> bool {
        !self.orphans(state).works.is_empty()
    }

    fn orphans(&self, state: &SessionState) -> FoundOrphans {
        let processes = state.session_id().and_then(|id| self.0.get(id));
        let owners: Vec<_> = dead_owners(state).collect();
        let is_recorded = |marker: &Arc<str>| {
            let mut works = state.background().iter();
            works.any(|work| work.marker.as_ref() == Some(marker))
        };
        let mut calls = BTreeMap::<&Arc<str>, Vec<&MarkedProcess>>::new();
        for process in processes.into_iter().flatten() {
            calls.entry(&process.marker).or_default().push(process);
        }
        let mut found = FoundOrphans::default();
        for (marker, processes) in calls {
            let Some(parsed) = CallMarker::parse(marker).filter(|_| !is_recorded(marker)) else {
                continue;
            };
            let mut latest = owners.iter().rev();
            let Some((turn, owner)) = latest.find(|(_, owner)| parsed.is_owned_by(owner)) else {
                continue;
            };
            let age = |process: &&&MarkedProcess| {
                let identity = &process.member.identity;
                (identity.start_ticks, identity.pid)
            };
            let Some(oldest) = processes.iter().min_by_key(age) else {
                continue;
            };
            found.processes += processes.len();
            found.are_kept |= processes.iter().any(|process| is_kept(process, owner));
            let number = next_number(state) + found.works.len() as u64;
            let unique = marker.rsplit('.').next().unwrap_or_default();
            found.works.push(RecordedWork {
                id: BackgroundId::new(format!("bg_{number}")),
                turn: turn.turn,
                message: turn.message.clone(),
                call_id: CallId::new(unique),
                name: command_name(&oldest.member.command_line),
                kind: BackgroundKind::Shell,
                attachment: Attachment::Attached,
                process: Some(oldest.member.identity.clone()),
                keeper: None,
                marker: Some(Arc::clone(marker)),
                output: None,
                ended: None,
                answer: None,
                reported: false,
            });
        }
        found
    }
}

/// Orphaned calls of one session. Each work has the id that its record would have.
#[derive(Debug, Default)]
struct FoundOrphans {
    works: Vec<RecordedWork>,
    /// Number of processes of these works.
    processes: usize,
    /// True if a keeper may still end some of the processes.
    are_kept: bool,
}

/// The ended processes that ran turns of the session, in the order of the turns.
fn dead_owners(state: &SessionState) -> impl Iterator<Item = (&TurnSummary, &ProcessIdentity)> {
    let owners = state.turns().iter();
    let owners = owners.filter_map(|turn| Some((turn, turn.owner.as_ref()?)));
    owners.filter(|(_, owner)| {
        *owner != this_process()
            && is_of_this_boot(owner)
            && !is_out_of_view(owner)
            && !is_alive(owner)
    })
}

/// True if the process may have a living keeper. A keeper is younger than its owner. After the end of owner and keeper,
/// an ancestor of the owner adopts the process, and an ancestor is older.
fn is_kept(process: &MarkedProcess, owner: &ProcessIdentity) -> bool {
    let parent = process.parent.as_ref();
    parent.is_some_and(|parent| parent.start_ticks >= owner.start_ticks)
}

/// True if the session can have orphaned calls. A committed turn had no running call at its end.
fn may_have_orphans(state: &SessionState) -> bool {
    let is_cut_off = |turn: &TurnSummary| {
        let ending = turn.ending.as_ref();
        ending.is_none_or(|ending| ending.cause.is_some())
    };
    dead_owners(state).any(|(turn, _)| is_cut_off(turn))
}

/// Waits until no keeper ends processes of the session, for at most four seconds. Then returns the orphaned calls of the
/// session, which the log does not contain yet. Reads `/proc`, on threads of `scope`.
///
/// # Cancel safety
/// Cancel safe: dropping the future only discards the result of the search.
pub async fn settled_orphaned_calls(state: &SessionState, scope: &Scope) -> Vec<OrphanedWork> {
    let found = settled(state, scope).await;
    found.iter().map(OrphanedWork::recorded).collect()
}

/// Records the orphaned calls of a session as background work. No other process can have the session open.
pub(crate) async fn record_orphaned_calls(
    writer: &mut SessionWriter,
    scope: &Scope,
) -> Result<(), SessionError> {
    let orphans = settled(writer.state(), scope).await;
    if orphans.is_empty() {
        return Ok(());
    }
    writer
        .append(orphans.into_iter().map(started).collect())
        .await
}

async fn settled(state: &SessionState, scope: &Scope) -> Vec<RecordedWork> {
    if !may_have_orphans(state) {
        return Vec::new();
    }
    let end = Instant::now() + KEEPERS_MAX;
    let mut idle_end = Instant::now() + KEEPER_IDLE_MAX;
    let mut found = search(state, scope).await;
    // A search can miss a process in the middle of an exec, so two searches must agree. The main process of a work is its
    // oldest process, and later sweeps skip all older processes.
    let mut is_confirmed = found.works.is_empty();
    while (found.are_kept || !is_confirmed)
        && Instant::now() < end.min(idle_end)
        && !scope.is_stopped()
    {
        tokio::time::sleep(SEARCH_AGAIN).await;
        let next = search(state, scope).await;
        if next.processes < found.processes {
            idle_end = Instant::now() + KEEPER_IDLE_MAX;
        }
        is_confirmed = next.works == found.works;
        found = next;
    }
    found.works
}

/// The orphaned calls of the session. Empty if the search is impossible.
async fn search(state: &SessionState, scope: &Scope) -> FoundOrphans {
    let Some(id) = state.session_id().cloned() else {
        return FoundOrphans::default();
    };
    let spec = WorkSpec::new(ItemKind::Thread, "search for processes");
    let searching = scope.spawn_blocking(spec, move |_| {
        CallProcesses::of(marked_processes(|marker| {
            CallMarker::parse(marker).is_some_and(|marker| marker.session == id)
        }))
    });
    let Ok(searching) = searching else {
        return FoundOrphans::default();
    };
    let found = timeout(SEARCH_MAX, searching).await;
    let found = found.ok().and_then(Result::ok).unwrap_or_default();
    found.orphans(state)
}

/// Record of the start of an orphaned call as background work.
fn started(work: RecordedWork) -> SessionRecord {
    SessionRecord::BackgroundStarted {
        id: work.id,
        turn: work.turn,
        call_id: work.call_id,
        name: work.name,
        kind: work.kind,
        attachment: work.attachment,
        process: work.process,
        keeper: work.keeper,
        marker: work.marker,
        output: work.output,
    }
}
