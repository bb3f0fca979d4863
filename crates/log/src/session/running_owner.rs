//! Owner of a session (the process that has the session open), as named in the session's records. The lock of the
//! session is not checked here.

use allstop_core::process::ProcessIdentity;
use allstop_core::turn::SessionState;

use crate::{Log, LogError};

/// Owner of the last turn, if this owner is another process that runs, and if the record of the owner still counts.
///
/// While the turn is open, the record counts, because an owner keeps the session until the turn ends. After the turn,
/// the owner may have released the session, so normally only the lock counts. But if `locks_are_lost` is true, the
/// record counts even then.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the store cannot find out whether the owner runs.
pub(super) async fn running_owner(
    log: &dyn Log,
    state: &SessionState,
    locks_are_lost: bool,
) -> Result<Option<ProcessIdentity>, LogError> {
    let last = state.turns().last();
    let last = last.filter(|_| locks_are_lost || state.open_turn().is_some());
    let Some(owner) = last.and_then(|turn| turn.owner.as_ref()) else {
        return Ok(None);
    };
    let is_alive = log.is_other_process_running(owner).await?;
    Ok(is_alive.then(|| owner.clone()))
}
