//! Owners that the records of a session name, and that live whatever its lock says.

use allstop_core::process::ProcessIdentity;
use allstop_core::turn::SessionState;

use crate::{Log, LogError};

/// The living process, other than this one, that the last turn names as its owner, if it is to be believed.
///
/// While a turn is open it is: an owner keeps the session from a turn's start to its ending. Behind the ending it may have
/// given the session back, to sleep, so there the lock decides; unless `locks_are_lost`.
///
/// **Cancel safety**: dropping it leaves nothing behind.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn living_owner(
    log: &dyn Log,
    state: &SessionState,
    locks_are_lost: bool,
) -> Result<Option<ProcessIdentity>, LogError> {
    let last = state.turns().last();
    let last = last.filter(|_| locks_are_lost || state.open_turn().is_some());
    let Some(owner) = last.and_then(|turn| turn.owner.as_ref()) else {
        return Ok(None);
    };
    let is_alive = log.is_another_alive(owner).await?;
    Ok(is_alive.then(|| owner.clone()))
}
