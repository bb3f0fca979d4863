//! Removal of an output file that no process uses.
//!
//! A writer holds a shared lock on its file as long as its work may print ([`OutputFolder`](crate::output::OutputFolder)
//! creates the file). A removal needs the exclusive lock, and never waits for it. The kernel releases the lock when a
//! process ends in any way.
//!
//! A reader of the path finds the old content, or a note with the reason: the note is renamed over the file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::stored_file::{BLOCK_BYTES, StoredFile};
use crate::output::disk_limit::DiskLimit;
use crate::output::file_identity::{is_at, is_output_name};

/// Removes a file because of this limit. Returns the number of freed bytes: 0 if the file is in use, or cannot be
/// removed.
pub(super) fn remove(file: &StoredFile, limit: DiskLimit) -> u64 {
    match remove_unused(file, limit) {
        Ok(freed) => freed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.bytes,
        Err(error) => {
            tracing::warn!(path = %file.path.display(), %error, "an output file could not be removed");
            0
        }
    }
}

fn remove_unused(file: &StoredFile, limit: DiskLimit) -> io::Result<u64> {
    let path = &file.path;
    let opened = File::open(path)?;
    // Also on a file system without locks the file stays, because it may be in use.
    if opened.try_lock().is_err() {
        return Ok(0);
    }
    if !is_at(&opened, path) {
        // Another process has put a note in place of the file.
        return Ok(file.bytes - BLOCK_BYTES);
    }
    let bytes = opened.metadata()?.len();
    tracing::info!(path = %path.display(), bytes, %limit, "removing an output file");
    // Only output files have readers that know their path.
    let has_readers = path.file_name().is_some_and(is_output_name);
    if !file.is_small() && has_readers && put_note(path, &limit.removal_note(bytes)).is_ok() {
        return Ok(file.bytes - BLOCK_BYTES);
    }
    // A full disk may have no space for the note.
    fs::remove_file(path)?;
    Ok(file.bytes)
}

/// Replaces the file. Only the holder of the exclusive lock on the file calls this function, so the temporary file has
/// one writer.
fn put_note(path: &Path, note: &str) -> io::Result<()> {
    let mut name = OsString::from(path);
    name.push(".note");
    let temporary = PathBuf::from(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let put = options
        .open(&temporary)
        .and_then(|mut file| file.write_all(note.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if put.is_err() {
        drop(fs::remove_file(&temporary));
    }
    put
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;

    fn stored(folder: &Path, name: &str, bytes: u64) -> StoredFile {
        let path = folder.join(name);
        fs::write(&path, vec![b'x'; usize::try_from(bytes).unwrap()]).unwrap();
        StoredFile {
            folder: Arc::from(folder),
            path,
            bytes,
            modified: SystemTime::UNIX_EPOCH,
        }
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    const LIMIT: DiskLimit = DiskLimit::Session(1 << 30);

    #[test]
    fn note_replaces_a_long_output() {
        let folder = tempfile::tempdir().unwrap();
        let file = stored(folder.path(), "output-1-1.txt", 81_920);
        // A leftover of a process that was killed while it wrote a note.
        fs::write(
            folder.path().join("output-1-1.txt.note"),
            "a longer leftover".repeat(50),
        )
        .unwrap();
        let before = File::open(&file.path).unwrap();
        assert_eq!(remove(&file, LIMIT), 81_920 - BLOCK_BYTES);
        assert_eq!(
            fs::read_to_string(&file.path).unwrap(),
            "[Allstop removed this output of 81,920 bytes: the output files of the session have reached the limit of 1 GiB]\n"
        );
        assert_eq!(names(folder.path()), ["output-1-1.txt"]);
        assert_eq!(
            before.metadata().unwrap().len(),
            81_920,
            "a reader keeps it"
        );
    }

    #[test]
    fn small_file_and_foreign_file_leave_no_note() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("output-1-2.txt", BLOCK_BYTES), ("event-abc.json", 81_920)] {
            let file = stored(folder.path(), name, bytes);
            assert_eq!(remove(&file, LIMIT), bytes);
            assert_eq!(names(folder.path()), [""; 0]);
        }
    }

    #[test]
    fn locked_file_stays_until_its_lock_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let file = stored(folder.path(), "output-1-1.txt", 81_920);
        let writer = File::open(&file.path).unwrap();
        writer.try_lock_shared().unwrap();
        assert_eq!(remove(&file, LIMIT), 0);
        assert_eq!(fs::metadata(&file.path).unwrap().len(), 81_920);
        drop(writer);
        assert_eq!(remove(&file, LIMIT), 81_920 - BLOCK_BYTES);
    }

    #[test]
    fn missing_file_counts_as_freed() {
        let folder = tempfile::tempdir().unwrap();
        let file = stored(folder.path(), "output-1-1.txt", 8_192);
        fs::remove_file(&file.path).unwrap();
        assert_eq!(remove(&file, LIMIT), 8_192);
    }
}
