//! Sessions of the store that no process reported: sessions with orphaned work (work that runs although no process owns
//! it), and sessions of unreachable processes.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_core::turn::SessionState;
use allstop_log::{Log, SessionError, list_sessions, read_session};
use allstop_runtime::{OrphanedWork, scan_orphans};
use allstop_scope::Scope;
use allstop_session::orphan_search::OrphanSearch;
use allstop_session::orphaned_calls::{CallProcesses, settled_orphaned_calls};
use futures::future::join_all;

use crate::error::CliError;
use crate::short_id::short;
use allstop_remote::ProcessNumber;

/// A session that no process has open, with its running background work.
#[derive(Debug)]
pub(super) struct LeftSession {
    pub(super) id: SessionId,
    /// Working folder of the last opening.
    pub(super) folder: Option<Arc<str>>,
    pub(super) work: Vec<OrphanedWork>,
}

/// Sessions of the store that no process reported.
#[derive(Debug, Default)]
pub(super) struct UnreportedSessions {
    pub(super) left: Vec<LeftSession>,
    /// Sessions that are open in unreachable processes.
    pub(super) unreachable: Vec<UnreachableSession>,
    /// Sessions that no process has open, with running processes of their calls that belong to no known owner, such as
    /// processes of an older version of Allstop. A keeper may be ending the processes.
    pub(super) dying: Vec<SessionId>,
    /// Warnings about sessions whose work could not be examined, with the reason, one per line: the log cannot be read, or
    /// the search for processes did not finish.
    pub(super) unexamined: Vec<String>,
}

impl UnreportedSessions {
    /// Warnings about sessions whose work may run although it is not listed, one per line.
    pub(super) fn problems(&self) -> Vec<String> {
        let unreachable = self.unreachable.iter().map(ToString::to_string);
        let dying = self.dying.iter().map(|id| {
            let id = short(id.as_str());
            format!(
                "processes of the session `{id}` run although their owner has ended; if they stay, `allstop receipt` \
                 with this id names a pid"
            )
        });
        let all = unreachable.chain(self.unexamined.iter().cloned());
        all.chain(dying).collect()
    }

    /// Adds the running work of a session that no process has open.
    fn add_ended(
        &mut self,
        id: SessionId,
        state: &SessionState,
        orphans: OrphanSearch,
        processes: &CallProcesses,
    ) {
        let mut work = scan_orphans(state);
        work.extend(orphans.works);
        if !(orphans.unsearched.is_empty() && processes.unsearched(state).is_empty()) {
            self.add_unsearched(&id);
        }
        let is_of_work = |marker: &Arc<str>| {
            let mut work = work.iter();
            work.any(|work| work.marker.as_ref() == Some(marker))
        };
        if !processes.markers(&id).all(is_of_work) {
            self.dying.push(id.clone());
        }
        work.retain(|work| work.alive);
        if !work.is_empty() {
            self.left.push(LeftSession {
                id,
                folder: state.folder().cloned(),
                work,
            });
        }
    }

    fn add_unsearched(&mut self, id: &SessionId) {
        let id = short(id.as_str());
        let said = format!(
            "processes of session `{id}` may still run: the search for them did not finish; repeat the command"
        );
        self.unexamined.push(said);
    }

    fn add_unreadable(&mut self, id: &SessionId, error: &SessionError) {
        let id = short(id.as_str());
        let said = format!("work of session `{id}` may still run: its log cannot be read: {error}");
        self.unexamined.push(said);
    }
}

/// Session that is open in a process without a socket in the socket folder of this process.
#[derive(Debug)]
pub(super) struct UnreachableSession {
    pub(super) id: SessionId,
    pub(super) pid: u32,
}

impl fmt::Display for UnreachableSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, pid) = (short(self.id.as_str()), self.pid);
        write!(
            f,
            "the session `{id}` is open in process {pid}, which has no socket here: it may be ending, or use another \
             XDG_RUNTIME_DIR; to reach it, set the variable to the same value here"
        )
    }
}

/// Finds the unreported sessions of the store. `known` contains the sessions that processes reported. `asked` contains
/// the processes that were asked for their sessions. Reads `/proc`, on threads of `scope`.
///
/// # Errors
/// If the store failed.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn unreported_sessions(
    log: &dyn Log,
    known: &HashSet<SessionId>,
    asked: &HashSet<ProcessNumber>,
    scope: &Scope,
) -> Result<UnreportedSessions, CliError> {
    let listed = list_sessions(log).await;
    let listed = listed.map_err(|error| CliError::failure(error.to_string()))?;
    let mut unreported = UnreportedSessions::default();
    let processes = CallProcesses::find(scope).await;
    let mut with_orphans = Vec::new();
    for summary in listed {
        if known.contains(&summary.id) {
            continue;
        }
        if let (Some(error), None) = (&summary.problem, &summary.owner) {
            unreported.add_unreadable(&summary.id, error);
            continue;
        }
        if let Some(owner) = &summary.owner {
            // If the owner was asked but did not report this session, the session is about to end, or sleeps (is idle
            // with a closed log).
            if !asked.contains(&ProcessNumber::of(owner)) {
                let (id, pid) = (summary.id, owner.pid);
                unreported.unreachable.push(UnreachableSession { id, pid });
            }
            continue;
        }
        let state = match read_session(log, &summary.id).await {
            Ok((state, None)) => state,
            // A process has opened the session since the list was read, for example another `allstop stop`.
            Ok((_, Some(owner))) => {
                if !asked.contains(&ProcessNumber::of(&owner)) {
                    let (id, pid) = (summary.id, owner.pid);
                    unreported.unreachable.push(UnreachableSession { id, pid });
                }
                continue;
            }
            Err(error) => {
                unreported.add_unreadable(&summary.id, &error);
                continue;
            }
        };
        if processes.has_orphans(&state) {
            with_orphans.push((summary.id, state));
        } else {
            unreported.add_ended(summary.id, &state, OrphanSearch::default(), &processes);
        }
    }
    if with_orphans.is_empty() {
        return Ok(unreported);
    }
    let orphans = with_orphans.iter();
    let orphans = orphans.map(|(_, state)| settled_orphaned_calls(state, scope));
    let orphans = join_all(orphans).await;
    // Keepers have ended some of the processes meanwhile.
    let processes = CallProcesses::find(scope).await;
    for ((id, state), orphans) in with_orphans.into_iter().zip(orphans) {
        unreported.add_ended(id, &state, orphans, &processes);
    }
    Ok(unreported)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use allstop_core::process::ProcessIdentity;
    use allstop_core::record::{SessionRecord, TurnOrigin};
    use allstop_core::{Timestamp, TurnNumber};
    use allstop_log::{LogError, LogFuture, LogWrapper, MemoryLog, SessionWriter, StreamName};
    use allstop_process::this_process;
    use allstop_scope::RootOptions;

    use super::*;

    /// A session that was killed in its turn, or a session without a turn.
    fn state(is_cut_off: bool) -> SessionState {
        let at = Timestamp::from_unix_ms(0);
        let opened = SessionRecord::SessionOpened {
            session_id: "s1".into(),
            at,
            folder: "/tmp".into(),
        };
        let owner = ProcessIdentity {
            start_ticks: 1,
            ..this_process().clone()
        };
        let started = SessionRecord::TurnStarted {
            turn: TurnNumber(1),
            at,
            input: "hello".into(),
            images: Vec::new(),
            owner: Some(owner),
            message: None,
            origin: TurnOrigin::User,
            reported: Vec::new(),
        };
        let turns = is_cut_off.then_some(&started);
        SessionState::fold([&opened].into_iter().chain(turns)).expect("legal records")
    }

    /// Regression: `ps` and `stop --all` reported that no work was left, although the search had not finished.
    #[test]
    fn unfinished_search_is_a_problem_of_cut_off_sessions() {
        let unfinished = CallProcesses::default();
        for (is_cut_off, problems) in [(true, 1), (false, 0)] {
            let mut unreported = UnreportedSessions::default();
            let state = state(is_cut_off);
            unreported.add_ended("s1".into(), &state, OrphanSearch::default(), &unfinished);
            let found = unreported.problems();
            assert_eq!(found.len(), problems, "{found:?}");
            assert!(
                found.iter().all(|it| it.contains("did not finish")),
                "{found:?}"
            );
            assert_eq!(unreported.unexamined.len(), problems);
        }
    }

    /// A log with a session that another process opens after the first read of its owner.
    #[derive(Debug)]
    struct OpenedMeanwhile {
        log: Arc<dyn Log>,
        reads: AtomicUsize,
    }

    impl LogWrapper for OpenedMeanwhile {
        fn inner(&self) -> &dyn Log {
            &*self.log
        }

        fn lock_owner(
            &self,
            _stream: &StreamName,
        ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
            let is_first = self.reads.fetch_add(1, Ordering::Relaxed) == 0;
            let owner = (!is_first).then(|| this_process().clone());
            LogFuture::ready(Ok(owner))
        }
    }

    /// Regression: `ps` and `stop --all` left out a session that another `allstop stop` opened meanwhile.
    #[tokio::test]
    async fn session_that_is_opened_meanwhile_is_unreachable() {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let at = Timestamp::from_unix_ms(0);
        let created = SessionWriter::create(Arc::clone(&log), "s1".into(), at, "/tmp", None).await;
        drop(created.expect("a new session"));
        let log = OpenedMeanwhile {
            log,
            reads: AtomicUsize::new(0),
        };
        let scope = Scope::root("test", RootOptions::single_runtime());
        let (known, asked) = (HashSet::new(), HashSet::new());
        let found = unreported_sessions(&log, &known, &asked, &scope).await;
        let found = found.expect("it works");
        let [held] = &*found.unreachable else {
            panic!("{found:?}")
        };
        assert_eq!((held.id.as_str(), held.pid), ("s1", this_process().pid));
        assert_eq!(found.problems().len(), 1);
    }
}
