//! Sessions of the store that no process told of: work that was left running, and processes that cannot be asked.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_log::{Log, list_sessions, read_session};
use allstop_runtime::{UnendedWork, unended_work};

use crate::error::CliError;
use crate::short_id::short;

/// A session without an owner, with its background work that runs.
#[derive(Debug)]
pub(super) struct LeftSession {
    pub(super) id: SessionId,
    /// Working folder of the last opening.
    pub(super) folder: Option<Arc<str>>,
    pub(super) work: Vec<UnendedWork>,
}

/// The store's sessions that no process told of.
#[derive(Debug, Default)]
pub(super) struct UntoldSessions {
    pub(super) left: Vec<LeftSession>,
    /// Sessions that processes have open which cannot be asked from here.
    pub(super) out_of_reach: Vec<OutOfReach>,
}

/// A session whose process has no socket where this one looks.
#[derive(Debug)]
pub(super) struct OutOfReach {
    id: SessionId,
    pid: u32,
}

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, pid) = (short(self.id.as_str()), self.pid);
        write!(
            f,
            "the session `{id}` is open in process {pid}, which has no socket here: it may be ending, or have another \
             XDG_RUNTIME_DIR"
        )
    }
}

/// All of them in the store. A session that cannot be read is left out. `told`: sessions that processes told of; `asked`: all
/// processes that were asked.
///
/// # Errors
/// If the store failed.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn untold_sessions(
    log: &dyn Log,
    told: &HashSet<SessionId>,
    asked: &HashSet<u32>,
) -> Result<UntoldSessions, CliError> {
    let listed = list_sessions(log).await;
    let listed = listed.map_err(|error| CliError::failure(error.to_string()))?;
    let mut untold = UntoldSessions::default();
    for summary in listed {
        if summary.problem.is_some() || told.contains(&summary.id) {
            continue;
        }
        if let Some(owner) = &summary.owner {
            // What a process that was asked does not tell of is sleeping, or ending.
            if !asked.contains(&owner.pid) {
                let (id, pid) = (summary.id, owner.pid);
                untold.out_of_reach.push(OutOfReach { id, pid });
            }
            continue;
        }
        let Ok((state, None)) = read_session(log, &summary.id).await else {
            continue;
        };
        let mut work = unended_work(&state);
        work.retain(|work| work.alive);
        if !work.is_empty() {
            untold.left.push(LeftSession {
                id: summary.id,
                folder: state.folder().cloned(),
                work,
            });
        }
    }
    Ok(untold)
}
