//! Sessions of the store that no process reported: sessions with orphaned work (work that runs although no process owns
//! it), and sessions of unreachable processes.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_log::{Log, SessionError, list_sessions, read_session};
use allstop_process::marked_processes;
use allstop_runtime::{OrphanedWork, scan_orphans};

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
    /// Sessions that no process has open, with running processes of their calls: a keeper is ending them, or it was
    /// killed together with the owner of the session.
    pub(super) dying: Vec<SessionId>,
    /// Warnings about unreadable sessions with the reason, one per line.
    pub(super) unreadable: Vec<String>,
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
        let all = unreachable.chain(self.unreadable.iter().cloned());
        all.chain(dying).collect()
    }

    fn add_unreadable(&mut self, id: &SessionId, error: &SessionError) {
        let id = short(id.as_str());
        let said = format!("work of session `{id}` may still run: its log cannot be read: {error}");
        self.unreadable.push(said);
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
/// the processes that were asked for their sessions.
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
) -> Result<UnreportedSessions, CliError> {
    let listed = list_sessions(log).await;
    let listed = listed.map_err(|error| CliError::failure(error.to_string()))?;
    let mut unreported = UnreportedSessions::default();
    let marked = marked_sessions();
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
            // A process has opened the session since the list was read.
            Ok((_, Some(_))) => continue,
            Err(error) => {
                unreported.add_unreadable(&summary.id, &error);
                continue;
            }
        };
        let mut work = scan_orphans(&state);
        let markers = marked.get(summary.id.as_str()).into_iter().flatten();
        let is_of_work = |marker: &str| {
            work.iter()
                .any(|work| work.marker.as_deref() == Some(marker))
        };
        if markers.into_iter().any(|marker| !is_of_work(marker)) {
            unreported.dying.push(summary.id.clone());
        }
        work.retain(|work| work.alive);
        if !work.is_empty() {
            unreported.left.push(LeftSession {
                id: summary.id,
                folder: state.folder().cloned(),
                work,
            });
        }
    }
    Ok(unreported)
}

/// Markers of the running processes of calls, by the id of their session. Reads `/proc`, which may block.
fn marked_sessions() -> HashMap<String, HashSet<String>> {
    let sessions = RefCell::new(HashMap::<String, HashSet<String>>::new());
    marked_processes(|marker| {
        if let Some((session, _call)) = marker.rsplit_once('.') {
            let mut sessions = sessions.borrow_mut();
            let markers = sessions.entry(session.to_owned()).or_default();
            markers.insert(marker.to_owned());
        }
        false
    });
    sessions.into_inner()
}
