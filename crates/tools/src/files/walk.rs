//! Walks a folder for `glob` and `grep`: in order, without `.git` and without ignored files. The walk never follows a
//! link.

use std::fs;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

use super::error::FileError;
use super::tool::StopCheck;
use super::workspace::LocatedPath;

/// Maximum size of an ignore file, in bytes. The walker reads the whole file. An ignore file that a person has written
/// has only a few kilobytes.
const IGNORE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Item of a walk.
pub(super) enum WalkItem {
    File(PathBuf),
    /// An entry that could not be read.
    Unreadable,
}

/// Visits the files below a folder, until `visit` returns `false`.
///
/// The ignore files in the folders above, up to the root of the allowed folder, apply too. If they ignore the walked
/// folder itself, they do not apply: a caller that names an ignored folder wants the files in that folder.
pub(super) fn walk(
    located: &LocatedPath,
    stop: &StopCheck,
    mut visit: impl FnMut(WalkItem) -> Result<bool, FileError>,
) -> Result<(), FileError> {
    let target = located.path();
    if walk_from(&located.root, &target, stop, &mut visit)? == TargetFound::No {
        walk_from(&target, &target, stop, &mut visit)?;
    }
    Ok(())
}

/// Visits the files below any folder, until `visit` returns `false`.
pub(super) fn walk_folder(
    folder: &Path,
    stop: &StopCheck,
    mut visit: impl FnMut(&Path) -> bool,
) -> Result<(), FileError> {
    let mut visit = |item| {
        Ok(match item {
            WalkItem::File(file) => visit(&file),
            WalkItem::Unreadable => true,
        })
    };
    walk_from(folder, folder, stop, &mut visit).map(drop)
}

#[derive(PartialEq, Eq)]
enum TargetFound {
    Yes,
    No,
}

fn walk_from(
    start: &Path,
    target: &Path,
    stop: &StopCheck,
    visit: &mut impl FnMut(WalkItem) -> Result<bool, FileError>,
) -> Result<TargetFound, FileError> {
    if !has_harmless_ignore_files(start) {
        // An ignore file of the start folder could block the walker, so the walk ends here. A folder further below with
        // such an ignore file is only skipped.
        visit(WalkItem::Unreadable)?;
        return Ok(TargetFound::Yes);
    }
    let mut builder = WalkBuilder::new(start);
    builder
        .current_dir(start)
        .hidden(false)
        // Ignore files above the root are outside the workspace, and the user's own git configuration does not apply.
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp);
    let only = target.to_owned();
    let stop_check = stop.clone();
    builder.filter_entry(move |entry| !stop_check.is_stopped() && is_wanted(entry, &only));
    let mut found = TargetFound::No;
    for entry in builder.build() {
        stop.check()?;
        let Ok(entry) = entry else {
            if !visit(WalkItem::Unreadable)? {
                return Ok(TargetFound::Yes);
            }
            continue;
        };
        if entry.path() == target {
            found = TargetFound::Yes;
        }
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        if is_file && entry.path().starts_with(target) && !visit(WalkItem::File(entry.into_path()))?
        {
            return Ok(TargetFound::Yes);
        }
    }
    Ok(found)
}

fn is_wanted(entry: &DirEntry, target: &Path) -> bool {
    let path = entry.path();
    if !path.starts_with(target) && !target.starts_with(path) {
        return false;
    }
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    !is_folder || (entry.file_name() != ".git" && has_harmless_ignore_files(path))
}

/// True if no ignore file could block the walker. The walker reads ignore files to their end, so a FIFO or `/dev/zero`
/// would block the walker forever.
fn has_harmless_ignore_files(folder: &Path) -> bool {
    [".gitignore", ".ignore"]
        .iter()
        .all(|name| match fs::metadata(folder.join(name)) {
            Ok(file) => file.is_dir() || (file.is_file() && file.len() <= IGNORE_FILE_BYTES_MAX),
            Err(_) => true,
        })
}
