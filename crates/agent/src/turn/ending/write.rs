//! Writes a turn's ending within a time limit, in case the store does not answer.

use std::time::Duration;

use allstop_core::record::SessionRecord;
use allstop_log::SessionError;
use allstop_scope::Scope;

use crate::error::TurnError;
use crate::history::RunHistory;

/// Time limit for the ending of a stopped turn. A store that blocks longer must not block the process: the next start
/// of the session finds the turn open and ends the turn.
///
/// The limit is well below [`allstop_scope::FORCE_MAX`], the time limit for the last steps of a stop. So the timeout is
/// still reported in time if a tool also had to be killed.
const ENDING_WRITE_MAX: Duration = Duration::from_millis(800);

/// Reason why an ending is not confirmed.
pub(super) enum NotWritten {
    /// The store returned an error.
    Failed(SessionError),
    /// The store has not answered: the ending may still be written. Before the next append, the session determines
    /// whether this append was written.
    NoAnswer,
}

impl NotWritten {
    /// True if it is known that nothing was written, so that another ending may be written.
    pub(super) fn is_known(&self) -> bool {
        !matches!(
            self,
            Self::NoAnswer | Self::Failed(SessionError::Indeterminate)
        )
    }
}

impl From<NotWritten> for TurnError {
    fn from(failed: NotWritten) -> Self {
        match failed {
            NotWritten::Failed(SessionError::Indeterminate) | NotWritten::NoAnswer => {
                Self::ending_unknown()
            }
            NotWritten::Failed(error) => error.into(),
        }
    }
}

/// Writes a turn's ending. Without a stop there is no time limit; after a stop, the time limit is [`ENDING_WRITE_MAX`].
pub(super) async fn write(
    history: &mut RunHistory,
    records: Vec<SessionRecord>,
    scope: &Scope,
) -> Result<(), NotWritten> {
    let patience = async {
        scope.stopped().await;
        tokio::time::sleep(ENDING_WRITE_MAX).await;
    };
    tokio::select! {
        biased;
        written = history.append(records) => written.map_err(NotWritten::Failed),
        () = patience => Err(NotWritten::NoAnswer),
    }
}
