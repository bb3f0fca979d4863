//! Sessions that no process has open and whose background work runs.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_log::{Log, list_sessions, read_session};
use allstop_runtime::{UnendedWork, unended_work};

use crate::error::CliError;

/// A session without an owner, with its background work that runs.
#[derive(Debug)]
pub(super) struct LeftSession {
    pub(super) id: SessionId,
    /// Working folder of the last opening.
    pub(super) folder: Option<Arc<str>>,
    pub(super) work: Vec<UnendedWork>,
}

/// All of them in the store. A session that cannot be read is left out.
///
/// # Errors
/// If the store failed.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn left_sessions(
    log: &dyn Log,
    open_elsewhere: &HashSet<SessionId>,
) -> Result<Vec<LeftSession>, CliError> {
    let listed = list_sessions(log).await;
    let listed = listed.map_err(|error| CliError::failure(error.to_string()))?;
    let mut left = Vec::new();
    for summary in listed {
        let has_owner = summary.owner.is_some() || open_elsewhere.contains(&summary.id);
        if has_owner || summary.problem.is_some() {
            continue;
        }
        let Ok((state, None)) = read_session(log, &summary.id).await else {
            continue;
        };
        let mut work = unended_work(&state);
        work.retain(|work| work.alive);
        if !work.is_empty() {
            left.push(LeftSession {
                id: summary.id,
                folder: state.folder().cloned(),
                work,
            });
        }
    }
    Ok(left)
}
