//! `edit`: one exact replacement in a file.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use allstop_core::{Effect, Images};
use memchr::memmem;
use rustix::fs::Stat;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open::{self, MissingFolders};
use super::replace::replace;
use super::tool::{FileAnswer, FilePreview, FileTool, StopCheck, check_shown};
use super::workspace::{FolderAccess, LocatedPath, Workspace};
use crate::effect::{DiffLimits, file_change};
use crate::file_state::FileState;
use crate::names;

/// Maximum size of a file to edit, in bytes. The old and the new content of the file are in memory at the same time.
/// Larger files are usually generated, not written by a person.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum number of counted occurrences. An exact number above this maximum has no use.
const COUNT_MAX: usize = 1_000;

/// Arguments of `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditArguments {
    /// The file, relative to the working directory.
    path: String,
    /// The text to replace, exactly as it is in the file. It must occur exactly once.
    #[schemars(length(min = 1))]
    old: String,
    /// The replacement.
    new: String,
}

impl FileTool for EditArguments {
    const NAME: &'static str = names::EDIT;
    const DESCRIPTION: &'static str = "Replaces `old` with `new` in a file, in one step. `old` must occur in the file \
        exactly once: include as many surrounding lines as needed.";
    const EFFECT: Effect = Effect::Irreversible;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        shown: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let planned = self.plan(workspace, stop)?;
        check_shown(shown, Some(&planned.stat), &planned.located.shown)?;
        let PlannedEdit {
            located,
            folder,
            stat,
            old,
            new,
            at,
        } = &planned;
        let path = &located.shown;
        let name = open::last_name(located)?;
        replace(folder, name, new, Some(stat), located, stop)?;
        let line = 1 + memchr::memchr_iter(b'\n', old.get(..*at).unwrap_or_default()).count();
        Ok(FileAnswer {
            text: format!("edited `{path}` at line {line}"),
            change: Some(file_change(path, Some(old), new, DiffLimits::EVENT)),
            images: Images::default(),
        })
    }

    fn preview(
        &self,
        workspace: &Workspace,
        stop: &StopCheck,
    ) -> Option<Result<FilePreview, FileError>> {
        let preview = |planned: PlannedEdit| {
            let path = &planned.located.shown;
            let (old, new) = (&planned.old, &planned.new);
            FilePreview {
                change: file_change(path, Some(old), new, DiffLimits::QUESTION),
                state: FileState::of(Some(&planned.stat)),
            }
        };
        Some(self.plan(workspace, stop).map(preview))
    }
}

/// An edit that is not written yet.
struct PlannedEdit {
    located: LocatedPath,
    folder: OwnedFd,
    stat: Stat,
    old: Vec<u8>,
    new: Vec<u8>,
    /// Byte offset of the replaced text in `old`, and of the replacement in `new`.
    at: usize,
}

impl EditArguments {
    fn plan(&self, workspace: &Workspace, stop: &StopCheck) -> Result<PlannedEdit, FileError> {
        let located = workspace.locate(&self.path, FolderAccess::ReadWrite)?;
        let path = &located.shown;
        let (folder, name) = open::parent(&located, MissingFolders::Refuse)?;
        let (file, stat) = open::file_in(&folder, name, &located)?;
        let too_large = |bytes| FileError::TooLarge {
            path: path.clone(),
            bytes,
            bytes_max: FILE_BYTES_MAX,
        };
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        if bytes > FILE_BYTES_MAX {
            return Err(too_large(bytes));
        }
        let mut content = Vec::new();
        // One byte more than the limit, because the file may have grown since its size was checked.
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content);
        read.map_err(|source| FileError::Io {
            action: "could not read",
            path: path.clone(),
            source,
        })?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large(content.len() as u64));
        }
        stop.check()?;
        // The search compares bytes, not characters, so that the rest of the file stays the same in every encoding.
        let at = the_only_match(&content, self.old.as_bytes(), path)?;
        if self.old == self.new {
            return Err(FileError::Edit(
                "`old` and `new` are the same; nothing was changed".to_owned(),
            ));
        }
        let (before, after) = content.split_at(at);
        let after = after.get(self.old.len()..).unwrap_or_default();
        let new = [before, self.new.as_bytes(), after].concat();
        Ok(PlannedEdit {
            located,
            folder,
            stat,
            old: content,
            new,
            at,
        })
    }
}

fn the_only_match(content: &[u8], old: &[u8], path: &str) -> Result<usize, FileError> {
    if old.is_empty() {
        return Err(FileError::Edit(
            "`old` is empty; use `write` for a new file".to_owned(),
        ));
    }
    let finder = memmem::Finder::new(old);
    let Some(first) = finder.find(content) else {
        let hint = if old.contains(&b'\n')
            && memmem::find(content, b"\r\n").is_some()
            && !old.contains(&b'\r')
        {
            "; the file's lines end with \\r\\n"
        } else {
            ""
        };
        return Err(FileError::Edit(format!(
            "`old` is not in `{path}`{hint}; nothing was changed"
        )));
    };
    // Overlapping occurrences count too: each is a possible target.
    let mut count = 1;
    let mut from = first + 1;
    while count < COUNT_MAX
        && let Some(next) = content.get(from..).and_then(|rest| finder.find(rest))
    {
        count += 1;
        from += next + 1;
    }
    if count == 1 {
        return Ok(first);
    }
    let count = if count == COUNT_MAX {
        format!("{COUNT_MAX} or more")
    } else {
        count.to_string()
    };
    Err(FileError::Edit(format!(
        "`old` occurs {count} times in `{path}` and must occur exactly once: include more of the surrounding text; nothing was changed"
    )))
}
