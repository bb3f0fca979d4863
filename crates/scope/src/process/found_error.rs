//! Why the tree of an earlier process cannot be taken up again.

/// The tree of an earlier process cannot be taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// Neither its main process nor its keeper runs, and no process carries its marker.
    #[error("it has ended")]
    Gone,
    /// What its processes are known by is not to be read: they belong to somebody else, or have cleared it away.
    #[error("its processes cannot be told from others for certain")]
    NoMarker,
    /// There is no `/proc` to find them in.
    #[error("processes of earlier runs cannot be found on this system")]
    NotHere,
}
