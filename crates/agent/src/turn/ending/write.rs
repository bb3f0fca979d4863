//! Writing the ending of a turn: a store that does not answer holds nobody.

use std::time::Duration;

use allstop_core::record::SessionRecord;
use allstop_log::SessionError;
use allstop_scope::Scope;

use crate::error::TurnError;
use crate::history::History;

/// How long the ending of a stopped turn may take to be written. A store that blocks longer must not hold the process:
/// the next start finds the turn open and ends it.
///
/// Well below [`allstop_scope::FORCE_MAX`], so that this is still said where a tool had to be killed before.
const ENDING_WRITE_MAX: Duration = Duration::from_millis(800);

/// Why an ending is not known to be written.
pub(super) enum NotWritten {
    /// The store said so.
    Failed(SessionError),
    /// The store has not answered: the ending may be written yet. The session settles it before anything else.
    NoAnswer,
}

impl NotWritten {
    /// Whether it is known that nothing was written, so that another ending may be.
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

/// Writes a turn's ending. While nothing is stopped the store may take its time; once something is, it has
/// [`ENDING_WRITE_MAX`].
pub(super) async fn write(
    history: &mut History,
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
