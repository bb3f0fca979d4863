//! The choice of the files that are removed for new output.
//!
//! Invariants:
//! 1. If the limit of a session is reached, only files of this session are removed.
//! 2. Files are removed in the order of their last write.
//! 3. A file in use stays.
//! 4. Small files, which include notes, are removed only if they need more than an eighth of the limit. A note in place
//!    of a small file would free no space, so its path refers to no file afterwards.

use std::path::Path;

use super::limits::{OutputBudgetLimits, step_min};
use super::stored_file::StoredFile;
use super::usage::DiskUsage;
use crate::output::disk_limit::DiskLimit;

/// Bytes that an output needs in the folder of its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskClaim<'a> {
    pub(super) folder: &'a Path,
    pub(super) bytes: u64,
}

/// Part of a limit that small files may need.
const SMALL_FILES_PART: u64 = 8;

/// Removes files until the claim fits, if this is possible. `remove` removes a file because of a limit, and returns the
/// number of freed bytes: 0 for a file in use.
pub(super) fn make_room(
    files: &[StoredFile],
    usage: &mut DiskUsage,
    limits: OutputBudgetLimits,
    claim: DiskClaim<'_>,
    mut remove: impl FnMut(&StoredFile, DiskLimit) -> u64,
) {
    let mut oldest_first: Vec<&StoredFile> = files.iter().collect();
    oldest_first.sort_by_key(|file| (file.is_small(), file.modified, &file.path));
    loop {
        let (room, limit) = usage.room(claim.folder, limits);
        if claim.bytes <= room {
            return;
        }
        // More space is freed than the claim needs, so that not every claim has to list the files again.
        let wanted = claim.bytes.saturating_add(step_min(limit));
        let is_reached = |usage: &DiskUsage| {
            let (room, now) = usage.room(claim.folder, limits);
            now == limit && room < wanted
        };
        let is_affected = |file: &StoredFile| {
            matches!(limit, DiskLimit::Store(_)) || *file.folder == *claim.folder
        };
        let small = oldest_first.iter().filter(|file| file.is_small());
        let small = small.filter(|file| is_affected(file));
        let mut small: u64 = small.map(|file| file.bytes).sum();
        let mut freed = 0;
        oldest_first.retain(|file| {
            if !is_affected(file) || !is_reached(usage) {
                return true;
            }
            if file.is_small() {
                if small <= limit.bytes_max() / SMALL_FILES_PART {
                    return true;
                }
                small -= file.bytes;
            }
            let bytes = remove(file, limit);
            usage.shrink(&file.folder, bytes);
            freed += bytes;
            false
        });
        if freed == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::super::stored_file::BLOCK_BYTES;
    use super::*;

    const MIB: u64 = 1 << 20;

    const LIMITS: OutputBudgetLimits = OutputBudgetLimits {
        session_bytes_max: 10 * MIB,
        store_bytes_max: 15 * MIB,
    };

    /// A file that was last written in this second. Its session is the part of its name before the slash.
    fn file(name: &str, bytes: u64, second: u64) -> StoredFile {
        let path = PathBuf::from(name);
        StoredFile {
            folder: Arc::from(path.parent().unwrap()),
            path,
            bytes,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
        }
    }

    /// Names of the removed files for a claim of the session `a`, and the room after that. Each removal leaves a note.
    fn removed(files: &[StoredFile], in_use: &[&str], bytes: u64) -> (Vec<String>, u64) {
        let mut usage = DiskUsage::of_files(files);
        let mut names = Vec::new();
        let folder = Path::new("a");
        let claim = DiskClaim { folder, bytes };
        make_room(files, &mut usage, LIMITS, claim, |file, limit| {
            let name = file.path.to_str().unwrap();
            if in_use.contains(&name) {
                return 0;
            }
            let of = match limit {
                DiskLimit::Store(_) => "store",
                _ => "session",
            };
            names.push(format!("{name} for the {of}"));
            file.bytes - if file.is_small() { 0 } else { BLOCK_BYTES }
        });
        (names, usage.room(folder, LIMITS).0)
    }

    #[test]
    fn claim_that_fits_removes_nothing() {
        let files = [file("a/1", 9 * MIB, 1), file("b/1", 5 * MIB, 1)];
        assert_eq!(removed(&files, &[], MIB), (vec![], MIB));
    }

    #[test]
    fn limit_of_the_session_removes_its_oldest_files() {
        let files = [
            file("a/2", 3 * MIB, 2),
            file("b/1", 4 * MIB, 0),
            file("a/3", 4 * MIB, 3),
            file("a/1", MIB, 1),
        ];
        let (names, room) = removed(&files, &[], 3 * MIB);
        assert_eq!(names, ["a/1 for the session", "a/2 for the session"]);
        assert!(room >= 3 * MIB);
    }

    #[test]
    fn limit_of_the_store_removes_the_oldest_files_of_all_sessions() {
        let files = [
            file("a/1", 4 * MIB, 2),
            file("b/1", 5 * MIB, 3),
            file("c/1", 5 * MIB, 1),
        ];
        let (names, _) = removed(&files, &[], 2 * MIB);
        assert_eq!(names, ["c/1 for the store"]);
    }

    #[test]
    fn both_limits_can_remove_files() {
        let files = [
            file("a/1", 2 * MIB, 9),
            file("a/2", 8 * MIB, 10),
            file("b/1", 4 * MIB, 1),
            file("c/1", 4 * MIB, 2),
        ];
        let (names, room) = removed(&files, &[], MIB);
        assert_eq!(names, ["a/1 for the session", "b/1 for the store"]);
        assert!(room >= MIB);
    }

    #[test]
    fn file_in_use_stays() {
        let files = [file("a/1", 6 * MIB, 1), file("a/2", 4 * MIB, 2)];
        let (names, room) = removed(&files, &["a/1"], MIB);
        assert_eq!(names, ["a/2 for the session"]);
        assert_eq!(room, 4 * MIB - BLOCK_BYTES);
        let (names, room) = removed(&files, &["a/1", "a/2"], MIB);
        assert_eq!((names, room), (vec![], 0));
    }

    #[test]
    fn small_files_are_removed_last() {
        let small = (0..2_048).map(|number| file(&format!("a/s{number:04}"), BLOCK_BYTES, 1));
        let mut files: Vec<StoredFile> = small.collect();
        files.push(file("a/long", 2 * MIB, 5));
        let (names, _) = removed(&files, &[], MIB);
        assert_eq!(names, ["a/long for the session"]);
        let (names, room) = removed(&files, &["a/long"], MIB);
        assert_eq!(names[0], "a/s0000 for the session");
        assert_eq!(names[1], "a/s0001 for the session");
        assert!(room >= MIB);
    }

    #[test]
    fn few_small_files_stay() {
        let small = (0..256).map(|number| file(&format!("a/{number}"), BLOCK_BYTES, 1));
        let mut files: Vec<StoredFile> = small.collect();
        files.push(file("a/long", 9 * MIB, 5));
        let (names, room) = removed(&files, &["a/long"], MIB);
        assert_eq!((names, room), (vec![], 0));
    }

    #[test]
    fn more_is_freed_than_one_claim_needs() {
        let old = (0..512).map(|number| file(&format!("a/{number:03}"), 5 * BLOCK_BYTES, number));
        let files: Vec<StoredFile> = old.collect();
        let (names, _) = removed(&files, &[], 100);
        assert!(names.len() > 1 && names.len() < 10, "{names:?}");
    }
}
