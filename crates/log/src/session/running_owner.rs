//! Living owners of a session as its records name them, regardless of the session's lock.

use allstop_core::process::ProcessIdentity;
use allstop_core::turn::SessionState;

use crate::{Log, LogError};

/// Owner of the last turn, if it is another process that runs, and if the record still counts.
///
/// The record counts while the turn is open, because an owner keeps the session until the turn ends. After that it may
/// have released the session, so the lock decides, unless `locks_are_lost`.
///
/// **Cancel safety**: dropping it has no effect.
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
