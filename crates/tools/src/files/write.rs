//! `write`: writes a whole file.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use allstop_core::counted::counted;
use allstop_core::{Effect, Images};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open::{self, MissingFolders};
use super::replace::replace;
use super::tool::{FileAnswer, FilePreview, FileTool, StopCheck, check_shown};
use super::workspace::{FolderAccess, LocatedPath, Workspace};
use crate::effect::{DiffLimits, FileChange, file_change};
use crate::file_state::FileState;
use crate::names;

/// Maximum size, in bytes, of old content that is compared with the new content. People do not read larger diffs, and
/// the content is held in memory.
const DIFF_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// The file, relative to the working directory. Missing folders are created.
    path: String,
    /// The whole content.
    content: String,
}

impl FileTool for WriteArguments {
    const NAME: &'static str = names::WRITE;
    const DESCRIPTION: &'static str = "Writes a whole file in one step and replaces existing content. Use `edit` to change a part of a file.";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        shown: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let located = workspace.locate(&self.path, FolderAccess::ReadWrite)?;
        let (folder, name) = open::parent(&located, MissingFolders::Create)?;
        let before = open::regular(&folder, name, &located)?;
        check_shown(shown, before.as_ref(), &located.shown)?;
        let old = match &before {
            // If a file can be written but not read, the call still writes it.
            Some(_) => old_content(&folder, name, &located).unwrap_or(OldContent::NotShown),
            None => OldContent::Missing,
        };
        replace(
            &folder,
            name,
            self.content.as_bytes(),
            before.as_ref(),
            &located,
            stop,
        )?;
        let action = if before.is_some() {
            "replaced"
        } else {
            "created"
        };
        let path = &located.shown;
        Ok(FileAnswer {
            text: format!("{action} `{path}`, {} bytes", self.content.len()),
            change: Some(self.change(path, &old, DiffLimits::EVENT)),
            images: Images::default(),
        })
    }

    fn preview(
        &self,
        workspace: &Workspace,
        _: &StopCheck,
    ) -> Option<Result<FilePreview, FileError>> {
        let preview = || {
            let located = workspace.locate(&self.path, FolderAccess::ReadWrite)?;
            let (old, stat) = match open::parent(&located, MissingFolders::Refuse) {
                Ok((folder, name)) => match open::regular(&folder, name, &located)? {
                    Some(stat) => (old_content(&folder, name, &located)?, Some(stat)),
                    None => (OldContent::Missing, None),
                },
                Err(FileError::NotFound { .. }) => (OldContent::Missing, None),
                Err(error) => return Err(error),
            };
            Ok(FilePreview {
                change: self.change(&located.shown, &old, DiffLimits::QUESTION),
                state: FileState::of(stat.as_ref()),
            })
        };
        Some(preview())
    }
}

/// Content that the call replaces.
enum OldContent {
    /// No file exists.
    Missing,
    Bytes(Vec<u8>),
    /// The content is too large for a diff, or cannot be read.
    NotShown,
}

fn old_content(
    folder: &OwnedFd,
    name: &OsStr,
    located: &LocatedPath,
) -> Result<OldContent, FileError> {
    let (file, _) = open::file_in(folder, name, located)?;
    let mut content = Vec::new();
    // One byte more than the limit, to detect a longer file.
    let read = file.take(DIFF_BYTES_MAX + 1).read_to_end(&mut content);
    read.map_err(|source| FileError::Io {
        action: "could not read",
        path: located.shown.clone(),
        source,
    })?;
    Ok(if content.len() as u64 > DIFF_BYTES_MAX {
        OldContent::NotShown
    } else {
        OldContent::Bytes(content)
    })
}

impl WriteArguments {
    fn change(&self, path: &str, old: &OldContent, limits: DiffLimits) -> FileChange {
        let old = match old {
            OldContent::Missing => None,
            OldContent::Bytes(old) => Some(old.as_slice()),
            OldContent::NotShown => {
                let note = format!(
                    "replaces the whole file with {}",
                    counted(self.content.len() as u64, "byte", "bytes")
                );
                return FileChange::without_lines(path, note);
            }
        };
        file_change(path, old, self.content.as_bytes(), limits)
    }
}
