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
use allstop_core::receipt::{ItemKind, MissedWork};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::{RecordedWork, SessionState, TurnSummary};
use allstop_core::{CallId, SessionId};
use allstop_log::{SessionError, SessionWriter};
use allstop_process::{
    MarkedProcess, MarkedSearch, is_alive, is_of_this_boot, is_out_of_view, marked_processes,
    this_process,
};
use allstop_scope::{Scope, WorkSpec};
use allstop_tools::command_name;
use tokio::time::{Instant, timeout};

use crate::call_marker::CallMarker;
use crate::orphan_scan::{OrphanedWork, next_number};
use crate::orphan_search::{OrphanSearch, UnsearchedTurns};

/// Maximum wait for living keepers without progress. A keeper kills the processes of a dead owner within milliseconds.
/// A suspended keeper kills none, so its calls count as orphaned after this time.
const KEEPER_IDLE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait for living keepers. Keepers end a thousand processes in less than two seconds.
const KEEPERS_MAX: Duration = Duration::from_secs(4);
/// Pause between two searches during [`KEEPERS_MAX`].
const SEARCH_AGAIN: Duration = Duration::from_millis(10);
/// Maximum time of one search. A search takes milliseconds, unless the memory of many processes is locked. After this
/// time the search counts as unfinished.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// Processes of calls whose owner has ended, as one search of `/proc` has found them.
#[derive(Debug, Default)]
pub struct CallProcesses {
    sessions: HashMap<SessionId, Vec<MarkedProcess>>,
    /// False if other processes of calls may run, because the search did not finish.
    is_complete: bool,
}

impl CallProcesses {
    /// Searches the running processes of this user, on a thread of `scope`. The search ends after at most two seconds.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future only discards the result of the search.
    pub async fn find(scope: &Scope) -> Self {
        let find = || marked_processes(|marker| CallMarker::parse(marker).is_some());
        Self::find_with(find, scope, SEARCH_MAX).await
    }

    /// Runs a search for at most this time. The result of a search that did not finish is empty and not complete.
    async fn find_with(
        find: impl FnOnce() -> MarkedSearch + Send + 'static,
        scope: &Scope,
        time_max: Duration,
    ) -> Self {
        let spec = WorkSpec::new(ItemKind::Thread, "search for processes");
        let Ok(searching) = scope.spawn_blocking(spec, move |_| Self::of(find())) else {
            return Self::default();
        };
        let found = timeout(time_max, searching).await;
        found.ok().and_then(Result::ok).unwrap_or_default()
    }

    fn of(found: MarkedSearch) -> Self {
        let mut sessions = HashMap::<_, Vec<_>>::new();
        for process in found.processes {
            let marker = CallMarker::parse(&process.marker);
            if let Some(marker) = marker.filter(|marker| !marker.owner_lives()) {
                sessions.entry(marker.session).or_default().push(process);
            }
        }
        Self {
            sessions,
            is_complete: found.is_complete,
        }
    }

    /// Markers of the running processes of a session.
    pub fn markers(&self, session: &SessionId) -> impl Iterator<Item = &Arc<str>> {
        let processes = self.sessions.get(session).into_iter().flatten();
        processes.map(|process| &process.marker)
    }

    /// True if orphaned calls of the session run, or processes that a keeper is about to end.
    pub fn has_orphans(&self, state: &SessionState) -> bool {
        !self.orphans(state).works.is_empty()
    }

    /// The turns of the session whose calls may have running processes that this search has not found.
    pub fn unsearched(&self, state: &SessionState) -> UnsearchedTurns {
        if self.is_complete {
            return UnsearchedTurns::default();
        }
        UnsearchedTurns::new(cut_off_turns(state).map(|turn| turn.message.clone()))
    }

    fn orphans(&self, state: &SessionState) -> FoundOrphans {
        let processes = state.session_id().and_then(|id| self.sessions.get(id));
        let owners: Vec<_> = dead_owners(state).collect();
        let is_recorded = |marker: &Arc<str>| {
            let mut works = state.background().iter();
            works.any(|work| work.marker.as_ref() == Some(marker))
        };
        let mut calls = BTreeMap::<&Arc<str>, Vec<&MarkedProcess>>::new();
        for process in processes.into_iter().flatten() {
            calls.entry(&process.marker).or_default().push(process);
        }
        let mut found = FoundOrphans {
            unsearched: self.unsearched(state),
            ..FoundOrphans::default()
        };
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
    /// Turns whose calls the search could not account for.
    unsearched: UnsearchedTurns,
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

/// Turns of ended owners that can have orphaned calls. A committed turn had no running call at its end.
fn cut_off_turns(state: &SessionState) -> impl Iterator<Item = &TurnSummary> {
    let is_cut_off = |turn: &&TurnSummary| {
        let ending = turn.ending.as_ref();
        ending.is_none_or(|ending| ending.cause.is_some())
    };
    let turns = dead_owners(state).map(|(turn, _)| turn);
    turns.filter(is_cut_off)
}

/// Work that no search for orphaned calls can find, if a crash has cut off a running tool call: a process that has cleared
/// its environment and lost its parent has no marker. `None` if no crash has cut off a tool call since the machine was
/// started.
pub fn missed_calls(state: &SessionState) -> Option<MissedWork> {
    let open = state.crash_receipt();
    let is_cut_off_call = |turn: &TurnSummary| {
        let receipt = match &turn.ending {
            Some(ending) => ending.receipt.as_deref(),
            None => open.as_ref(),
        };
        receipt.is_some_and(|receipt| {
            let mut items = receipt.items().iter();
            receipt.is_of_crash() && items.any(|item| item.kind == ItemKind::ToolCall)
        })
    };
    let is_missed = cut_off_turns(state).any(is_cut_off_call);
    is_missed.then_some(MissedWork::EscapedProcesses)
}

/// Waits until no keeper ends processes of the session, for at most four seconds. Then returns the orphaned calls of the
/// session, which the log does not contain yet. Reads `/proc`, on threads of `scope`. If a search does not finish, the
/// result names the turns whose calls may run.
///
/// # Cancel safety
/// Cancel safe: dropping the future only discards the result of the search.
pub async fn settled_orphaned_calls(state: &SessionState, scope: &Scope) -> OrphanSearch {
    let found = settled(state, scope).await;
    OrphanSearch {
        works: found.works.iter().map(OrphanedWork::recorded).collect(),
        unsearched: found.unsearched,
    }
}

/// Records the orphaned calls of a session as background work. No other process can have the session open. Returns the
/// turns whose calls the search could not account for.
pub(crate) async fn record_orphaned_calls(
    writer: &mut SessionWriter,
    scope: &Scope,
) -> Result<UnsearchedTurns, SessionError> {
    let found = settled(writer.state(), scope).await;
    if !found.works.is_empty() {
        let records = found.works.into_iter().map(started);
        writer.append(records.collect()).await?;
    }
    Ok(found.unsearched)
}

async fn settled(state: &SessionState, scope: &Scope) -> FoundOrphans {
    let Some(id) = state.session_id().cloned() else {
        return FoundOrphans::default();
    };
    let find = move || {
        marked_processes(|marker| {
            CallMarker::parse(marker).is_some_and(|marker| marker.session == id)
        })
    };
    settled_with(state, scope, find, SEARCH_MAX).await
}

/// Repeats searches of at most this time until they agree.
async fn settled_with(
    state: &SessionState,
    scope: &Scope,
    find: impl Fn() -> MarkedSearch + Clone + Send + 'static,
    time_max: Duration,
) -> FoundOrphans {
    if cut_off_turns(state).next().is_none() {
        return FoundOrphans::default();
    }
    let search = async || {
        let found = CallProcesses::find_with(find.clone(), scope, time_max).await;
        found.orphans(state)
    };
    let end = Instant::now() + KEEPERS_MAX;
    let mut idle_end = Instant::now() + KEEPER_IDLE_MAX;
    let mut found = search().await;
    // A search can miss a process in the middle of an exec, so two searches must agree. The main process of a work is its
    // oldest process, and later sweeps skip all older processes.
    let mut is_confirmed = found.works.is_empty();
    while (found.are_kept || !is_confirmed)
        && found.unsearched.is_empty()
        && Instant::now() < end.min(idle_end)
        && !scope.is_stopped()
    {
        tokio::time::sleep(SEARCH_AGAIN).await;
        let next = search().await;
        if !next.unsearched.is_empty() {
            // The earlier search has found work, and this search does not show its end.
            found.unsearched = next.unsearched;
            break;
        }
        if next.processes < found.processes {
            idle_end = Instant::now() + KEEPER_IDLE_MAX;
        }
        is_confirmed = next.works == found.works;
        found = next;
    }
    found
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use allstop_core::record::TurnOrigin;
    use allstop_core::{MessageId, Timestamp, TurnNumber};
    use allstop_process::TreeMember;
    use allstop_scope::RootOptions;

    use super::*;

    /// An ended process: no process with the pid of this process has this start time.
    fn dead_owner() -> ProcessIdentity {
        ProcessIdentity {
            start_ticks: 1,
            ..this_process().clone()
        }
    }

    /// A session whose process was killed in the turn of the message `m1`.
    fn killed_session() -> SessionState {
        let at = Timestamp::from_unix_ms(0);
        let opened = SessionRecord::SessionOpened {
            session_id: "s1".into(),
            at,
            folder: "/tmp".into(),
        };
        let started = SessionRecord::TurnStarted {
            turn: TurnNumber(1),
            at,
            input: "hello".into(),
            images: Vec::new(),
            owner: Some(dead_owner()),
            message: Some("m1".into()),
            origin: TurnOrigin::User,
            reported: Vec::new(),
        };
        SessionState::fold([&opened, &started]).expect("legal records")
    }

    /// A process of a call of the killed owner.
    fn left_process() -> MarkedProcess {
        let owner = dead_owner();
        MarkedProcess {
            marker: format!("s1.@{}-{}.call", owner.pid, owner.start_ticks).into(),
            member: TreeMember {
                identity: this_process().clone(),
                command_line: "sleep 600".into(),
            },
            parent: None,
        }
    }

    fn unsearched_turn() -> UnsearchedTurns {
        UnsearchedTurns::new([Some(MessageId::new("m1"))])
    }

    /// Regression: the result of a search that took too long was that no process is left.
    #[tokio::test]
    async fn unfinished_search_names_the_turns_of_killed_owners() {
        let scope = Scope::root("test", RootOptions::single_runtime());
        let (unblock, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(parking_lot::Mutex::new(blocked));
        let find = move || {
            let _unblocked = blocked.lock().recv();
            panic!("a search whose result is too late");
        };
        let state = killed_session();
        let found = settled_with(&state, &scope, find, Duration::from_millis(5)).await;
        drop(unblock);
        assert_eq!(found.unsearched, unsearched_turn());
        assert!(
            found
                .unsearched
                .item()
                .is_some_and(|it| it.state.breaks_quiet())
        );
    }

    #[tokio::test]
    async fn search_without_all_processes_is_unfinished() {
        let scope = Scope::root("test", RootOptions::single_runtime());
        let find = || MarkedSearch {
            processes: Vec::new(),
            is_complete: false,
        };
        let found = settled_with(&killed_session(), &scope, find, SEARCH_MAX).await;
        assert_eq!(found.unsearched, unsearched_turn());
    }

    #[tokio::test]
    async fn finished_search_accounts_for_all_turns() {
        let scope = Scope::root("test", RootOptions::single_runtime());
        let find = || MarkedSearch {
            processes: Vec::new(),
            is_complete: true,
        };
        let found = settled_with(&killed_session(), &scope, find, SEARCH_MAX).await;
        assert!(found.unsearched.is_empty() && found.works.is_empty());
    }

    /// Regression: a second search that took too long removed the processes that the first search had found.
    #[tokio::test]
    async fn processes_of_the_first_search_stay_if_the_second_is_unfinished() {
        let scope = Scope::root("test", RootOptions::single_runtime());
        let searches = Arc::new(AtomicUsize::new(0));
        let find = move || {
            let is_first = searches.fetch_add(1, Ordering::Relaxed) == 0;
            MarkedSearch {
                processes: is_first.then(left_process).into_iter().collect(),
                is_complete: is_first,
            }
        };
        let found = settled_with(&killed_session(), &scope, find, SEARCH_MAX).await;
        assert_eq!(found.works.len(), 1, "{found:?}");
        assert_eq!(found.unsearched, unsearched_turn());
    }

    #[tokio::test]
    async fn stopped_scope_starts_no_search_and_claims_nothing() {
        let scope = Scope::root("test", RootOptions::single_runtime());
        scope.close();
        let found = settled_orphaned_calls(&killed_session(), &scope).await;
        assert_eq!(found.unsearched, unsearched_turn());
    }
}
