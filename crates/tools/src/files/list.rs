//! `list`: the entries of a folder.

use allstop_core::Effect;
use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open;
use super::tool::{FileAnswer, FileTool, StopCheck};
use super::workspace::{FolderAccess, LocatedPath, Workspace};
use crate::file_state::FileState;
use crate::names;

/// Maximum number of entries in one answer. A larger folder is usually generated, and `glob` is the better tool for
/// such a folder.
const ENTRIES_SHOWN_MAX: usize = 1_000;
/// Maximum number of entries to read. A limit is needed because all entries are sorted in memory before the first ones
/// are shown.
const ENTRIES_READ_MAX: usize = 100_000;

/// Arguments of `list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    /// The folder, relative to the working directory; the working directory by default.
    path: Option<String>,
}

impl FileTool for ListArguments {
    const NAME: &'static str = names::LIST;
    const DESCRIPTION: &'static str = "Lists a folder, sorted, one entry per line: `name/` is a folder, `name -> target` a symbolic link.";
    const EFFECT: Effect = Effect::ReadOnly;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        _: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let located = workspace.locate(self.path.as_deref().unwrap_or("."), FolderAccess::Read)?;
        entries(&located, stop)
    }
}

/// Lists the entries of a folder.
pub(super) fn entries(located: &LocatedPath, stop: &StopCheck) -> Result<FileAnswer, FileError> {
    let path = &located.shown;
    let folder = open::folder(located)?;
    let entries = Dir::read_from(&folder).map_err(FileError::io("could not list", path))?;
    let mut lines = Vec::new();
    for entry in entries {
        stop.check()?;
        let entry = entry.map_err(FileError::io("could not list", path))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if lines.len() == ENTRIES_READ_MAX {
            break;
        }
        let mut line = name.to_string_lossy().into_owned();
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            FileType::Unknown => statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
            kind => kind,
        };
        match kind {
            FileType::Directory => line.push('/'),
            FileType::Symlink => {
                let target = readlinkat(&folder, name, Vec::new()).unwrap_or_default();
                line = format!("{line} -> {}", target.to_string_lossy());
            }
            FileType::RegularFile | FileType::Unknown => {}
            _ => line.push_str(" (not a regular file)"),
        }
        lines.push(line);
    }
    Ok(text(lines).into())
}

fn text(mut lines: Vec<String>) -> String {
    if lines.is_empty() {
        return "[the folder is empty]".to_owned();
    }
    lines.sort_unstable();
    let read = lines.len();
    lines.truncate(ENTRIES_SHOWN_MAX);
    if read == ENTRIES_READ_MAX {
        lines.push(format!(
            "[{ENTRIES_READ_MAX} entries or more, of which {ENTRIES_SHOWN_MAX} are shown]"
        ));
    } else if read > ENTRIES_SHOWN_MAX {
        lines.push(format!("[and {} more]", read - ENTRIES_SHOWN_MAX));
    }
    lines.join("\n")
}
