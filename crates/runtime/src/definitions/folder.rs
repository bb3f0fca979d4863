//! Bounded reading of folders and files that may contain anything.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use allstop_core::counted::counted;
use rustix::fs::OFlags;

/// Maximum number of entries of one folder that are read: more than a person can choose from.
pub(super) const ENTRIES_MAX: usize = 200;
/// Maximum number of names that are looked at, because all names are sorted in memory.
const NAMES_MAX: usize = 10_000;

/// The first names of a folder in their order, and a problem if there are more. A folder that does not exist has none.
pub(super) fn names(
    folder: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> (Vec<String>, Option<String>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
        Err(error) => {
            let problem = format!("{} is ignored: {error}", folder.display());
            return (Vec::new(), Some(problem));
        }
    };
    let mut names: Vec<String> = entries
        .take(NAMES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && is_wanted(name))
        .collect();
    names.sort_unstable();
    let total = names.len();
    names.truncate(ENTRIES_MAX);
    let problem = (total > ENTRIES_MAX).then(|| {
        format!(
            "{}: {} of its {} are ignored: at most {ENTRIES_MAX} are used",
            folder.display(),
            total - ENTRIES_MAX,
            counted(total as u64, "entry", "entries")
        )
    });
    (names, problem)
}

/// Reads a file of the user, at most one byte more than `bytes_max`; `None` if it does not exist. Follows links, because
/// users keep their configuration in other folders, but never waits for a named pipe.
pub(super) fn read_own(path: &Path, bytes_max: usize) -> Result<Option<(Vec<u8>, u64)>, String> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(format!(
            "it belongs to another user (uid {})",
            metadata.uid()
        ));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(Some((bytes, metadata.len())))
}
