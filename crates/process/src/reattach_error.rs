//! Errors of attaching to the tree of an earlier process.

/// Failure to attach to the tree of an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReattachError {
    /// Neither its main process nor its keeper runs, and no process carries its marker.
    #[error("it has ended")]
    Gone,
    /// Its processes are in another PID namespace, and may run there: they cannot be seen from here.
    #[error("it is in another PID namespace, whose processes cannot be seen from here")]
    OutOfView,
    /// The marker of its processes cannot be read: they belong to another user, or have cleared it.
    #[error("its processes cannot be told from others for certain")]
    NoMarker,
    /// The system has no `/proc` to find them in.
    #[error("processes of earlier runs cannot be found on this system")]
    NotHere,
}
