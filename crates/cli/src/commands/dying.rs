//! Wait for processes whose owner (the Allstop process of the session) was killed. Their keepers, small processes that
//! watch the owner, end these processes. This can take a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::SessionId;
use allstop_core::counted::counted;
use allstop_core::receipt::ItemKind;
use allstop_core::turn::SessionState;
use allstop_process::marked_processes;
use allstop_scope::{Scope, WorkSpec};
use allstop_session::CallMarker;
use allstop_session::orphan_scan::{OrphanedWork, scan_orphans};
use anyhow::Context as _;
use tokio::time::timeout;

use crate::error::CliError;
use crate::host::ProcessHost;

/// Maximum wait. Keepers end a thousand processes in less than two seconds.
const DYING_MAX: Duration = Duration::from_secs(4);
/// Pause between two searches.
const SEARCH_AGAIN: Duration = Duration::from_millis(10);

/// Markers of the background work of earlier processes that has no end in the log, and of calls whose owner and keeper
/// were killed. These processes may stay.
pub(super) fn background_markers(state: &SessionState, orphans: &[OrphanedWork]) -> Vec<Arc<str>> {
    let orphans = scan_orphans(state)
        .into_iter()
        .chain(orphans.iter().cloned());
    orphans.filter_map(|work| work.marker).collect()
}

/// Error for a search that ended without having examined all processes.
fn unfinished_search() -> CliError {
    let message = "processes of the session may still run: the search for them did not finish";
    CliError::failure(message).hint("repeat the command")
}

/// Waits until no process of these sessions runs. A marker in the environment of each process names its call. Processes
/// with one of the markers in `kept` may stay, and processes of a living owner: a session of another store can have an
/// equal id.
///
/// # Errors
/// If some of these processes do not end, or a search for them does not finish.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn dying_processes_gone(
    sessions: &[SessionId],
    kept: Vec<Arc<str>>,
    host: &ProcessHost,
) -> Result<(), CliError> {
    if sessions.is_empty() {
        return Ok(());
    }
    let until = Instant::now() + DYING_MAX;
    let sessions: Arc<[_]> = sessions.into();
    let kept: Arc<[_]> = kept.into();
    let scope = Scope::root("stop", host.scopes());
    let mut is_confirmed = false;
    loop {
        let (sessions, kept) = (Arc::clone(&sessions), Arc::clone(&kept));
        let spec = WorkSpec::new(ItemKind::Thread, "search for processes");
        let searching = scope.spawn_blocking(spec, move |_| {
            marked_processes(|marker| {
                CallMarker::parse(marker).is_some_and(|call| sessions.contains(&call.session))
                    && kept.iter().all(|kept| **kept != *marker)
            })
        });
        let searching = searching.context("cannot search for processes")?;
        // The first search gets the whole time, and so does the last one, so that a slow search is no failure.
        let searched = timeout(DYING_MAX, searching).await;
        let searched = searched.map_err(|_late| unfinished_search())?;
        let searched = searched.context("cannot search for processes")?;
        let mut found = searched.processes;
        if found.is_empty() && !searched.is_complete {
            return Err(unfinished_search());
        }
        let is_alone = found.is_empty();
        found.retain(|process| {
            CallMarker::parse(&process.marker).is_none_or(|call| !call.owner_lives())
        });
        let Some(first) = found.first() else {
            // An owner that is being killed counts as living for a moment.
            if is_alone || is_confirmed {
                return Ok(());
            }
            is_confirmed = true;
            tokio::time::sleep(SEARCH_AGAIN).await;
            continue;
        };
        if Instant::now() >= until {
            let (count, pid) = (found.len() as u64, first.member.identity.pid);
            let running = counted(count, "process still runs", "processes still run");
            let message =
                format!("{running} although the owner has ended; the first has pid {pid}");
            return Err(CliError::failure(message).hint("end them: kill PID"));
        }
        tokio::time::sleep(SEARCH_AGAIN).await;
    }
}
