//! The stores that this process has open.
//!
//! The checks of a store open and close its files. To close a file releases all POSIX locks that the process has on the
//! file, also those of other connections (`fcntl(2)`). So the checks run only if this process has no connection to the
//! store. These locks belong to the process, and so does this list.

use std::path::Path;

use super::classify::io_error;
use super::connection::{self, OpenStore};
use super::files::FileId;
use super::open_mark::OpenMark;
use super::{damage, new_store, other_path, restored};
use crate::LogError;

/// Opens the store. Creates the store if it is missing. If this process has the store not open yet, first checks that no
/// other path leads to the store, and that its write-ahead log is whole.
pub(super) fn open(path: &Path) -> Result<OpenStore, LogError> {
    new_store::make(path);
    // SQLite reports a file that could not be created.
    let Ok(id) = FileId::at(path) else {
        let store = connection::open(path)?;
        let id = FileId::at(path).map_err(|error| io_error(path, error))?;
        let mark = Some(OpenMark::of(id));
        return Ok(OpenStore { mark, ..store });
    };
    let mark = OpenMark::of(id);
    let opening = mark.lock();
    if mark.is_only_one() {
        other_path::check(path)?;
        restored::adopt(path)?;
        damage::check(path)?;
    }
    let store = connection::open(path)?;
    drop(opening);
    let mark = Some(mark);
    Ok(OpenStore { mark, ..store })
}
