//! Removal of a stored session with all of its files.

use std::io;
use std::path::{Path, PathBuf};

use allstop_core::SessionId;
use allstop_core::receipt::ItemKind;
use allstop_log::{Log, SessionError, begin_removal};
use allstop_scope::{NotStarted, Scope, WorkSpec};

use crate::output_folder::output_folder;

/// Reason why a session was not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveSessionError {
    /// The session is in use or unknown, or the store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The long output of the session cannot be removed. The session stays, so the removal can be repeated.
    #[error("the output files of session {id} cannot be removed: {}", .path.display())]
    Output {
        /// The session.
        id: SessionId,
        /// Folder with the output files.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The process ends.
    #[error(transparent)]
    Stopped(#[from] NotStarted),
}

/// Removes a session that no process has open, and first its long output in `outputs`. After a crash in between, the
/// session is still there, and the removal can be repeated. Files are removed in `scope`.
///
/// # Cancel safety
/// If the future is dropped, the session may be removed, or stay without its output.
///
/// # Errors
/// The session stays after each error, except that a failed store may have removed it.
pub async fn remove_session_with_output(
    log: &dyn Log,
    outputs: &Path,
    scope: &Scope,
    id: &SessionId,
) -> Result<(), RemoveSessionError> {
    let removal = begin_removal(log, id).await?;
    remove_output(outputs, scope, id).await?;
    Ok(removal.finish(log).await?)
}

/// Removes the long output of a session. Most sessions have none.
pub(crate) async fn remove_output(
    outputs: &Path,
    scope: &Scope,
    id: &SessionId,
) -> Result<(), RemoveSessionError> {
    let path = output_folder(outputs, id);
    let folder = path.clone();
    let spec = WorkSpec::new(ItemKind::Thread, "removing long output");
    let removed = scope
        .spawn_blocking(spec, move |_cx| std::fs::remove_dir_all(&folder))?
        .await;
    let removed = removed.unwrap_or_else(|lost| Err(io::Error::other(lost)));
    match removed {
        Ok(()) => Ok(()),
        // A folder whose name is too long was never created.
        Err(source)
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename
            ) =>
        {
            Ok(())
        }
        Err(source) => {
            let id = id.clone();
            Err(RemoveSessionError::Output { id, path, source })
        }
    }
}
