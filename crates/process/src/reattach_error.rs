//! Errors of attaching to the tree of an earlier process.

/// Failure to attach to the tree of an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReattachError {
    /// Neither the main process nor the keeper (the helper process that started the command) runs, and no process has
    /// the marker of the tree in its environment.
    #[error("it has ended")]
    Gone,
    /// The processes belong to another PID namespace. Such processes may run, but are not visible from here.
    #[error("it is in another PID namespace, whose processes cannot be seen from here")]
    OutOfView,
    /// The marker of the processes cannot be read, because the processes belong to another user or have cleared the
    /// marker.
    #[error("its processes cannot be identified with certainty")]
    NoMarker,
    /// The system has no `/proc`, so the processes cannot be found.
    #[error("processes of earlier runs cannot be found on this system")]
    NotHere,
}
