//! Instructions of a project: the files `AGENTS.md` from the repository's root down to the working directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use allstop_core::terminal_text::{escape, is_unsafe};
use allstop_tools::{FileBeginning, Workspace};

use super::git::Repository;

/// Name of the files.
const NAME: &str = "AGENTS.md";
/// Maximum size of one file's part in the prompt, in bytes: about 8,000 tokens, many times the usual size. Every model
/// call sends this part.
const FILE_BYTES_MAX: usize = 32 * 1024;
/// Maximum size of all files in the prompt, in bytes.
const TOTAL_BYTES_MAX: usize = 64 * 1024;

/// Instructions of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectInstructions {
    /// The files, from the root down.
    pub files: Vec<InstructionFile>,
    /// For each file that was left out, its name and the reason, as one readable line.
    pub left_out: Vec<String>,
}

/// Instruction file in the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// Path, relative to the repository's root.
    pub path: String,
    /// The text, or its beginning.
    pub text: String,
    /// Size of the whole file, in bytes.
    pub len: u64,
    /// True if `text` is only the beginning.
    pub is_cut: bool,
}

impl ProjectInstructions {
    /// Reads the files from the root of the repository around `folder` down to `folder`. Returns the root, too. May wait for
    /// a slow disk.
    pub fn around(folder: &Path) -> (PathBuf, Self) {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let repository = Repository::around(&folder);
        let root = repository.as_ref().map_or(&*folder, Repository::root);
        (root.to_owned(), Self::read(root, &folder))
    }

    /// Reads the files from `root` down to `folder`. Both paths must be resolved. May wait for a slow disk.
    pub(super) fn read(root: &Path, folder: &Path) -> Self {
        let mut found = Self::default();
        let Ok(workspace) = Workspace::new(root) else {
            return found;
        };
        let mut bytes_left = TOTAL_BYTES_MAX;
        let mut folders: Vec<&Path> = folder.ancestors().collect();
        folders.reverse();
        for folder in folders {
            let Ok(below_root) = folder.strip_prefix(root) else {
                continue;
            };
            let path = below_root.join(NAME).to_string_lossy().into_owned();
            match instructions(&workspace, folder, &path, bytes_left.min(FILE_BYTES_MAX)) {
                Ok(None) => {}
                Ok(Some(file)) => {
                    bytes_left -= file.text.len();
                    found.files.push(file);
                }
                Err(reason) => found.left_out.push(reason),
            }
        }
        found
    }

    /// Returns the section of the prompt, or an empty text without files.
    pub(super) fn text(&self) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let mut text =
            "Instructions of this project. Where two files disagree, the later one counts; what the person says \
             counts more."
                .to_owned();
        for file in &self.files {
            let path = escape(&file.path, is_unsafe);
            text.extend(["\n\n## ", &*path, "\n\n", file.text.trim_end()]);
            if file.is_cut {
                let (shown, len) = (file.text.len().to_string(), file.len.to_string());
                text.extend(["\n[cut after ", &shown, " of ", &len, " bytes]"]);
            }
        }
        text
    }
}

/// Reads one file; `None` if it does not exist.
fn instructions(
    workspace: &Workspace,
    folder: &Path,
    path: &str,
    bytes_max: usize,
) -> Result<Option<InstructionFile>, String> {
    let read = workspace.read_beginning(path, bytes_max);
    let Some(read) = read.map_err(|error| error.message)? else {
        return Ok(None);
    };
    check_owner(&read, folder).map_err(|reason| format!("`{path}` {reason}"))?;
    let FileBeginning { bytes, len, .. } = read;
    let is_cut = bytes.len() as u64 != len;
    if bytes.contains(&0) {
        return Err(format!("`{path}` is a binary file"));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            // The limit may have cut the last character in two.
            if !is_cut || error.utf8_error().error_len().is_some() {
                return Err(format!("`{path}` is not UTF-8: byte {valid} is invalid"));
            }
            let mut bytes = error.into_bytes();
            bytes.truncate(valid);
            String::from_utf8(bytes).unwrap_or_default()
        }
    };
    if is_cut && text.is_empty() {
        return Err(format!(
            "`{path}` exceeds the limit of {TOTAL_BYTES_MAX} bytes for all instructions"
        ));
    }
    Ok(Some(InstructionFile {
        path: path.to_owned(),
        text,
        len,
        is_cut,
    }))
}

/// Accepts only files of this user, of root, and of the owner of the folder. Any other user may have put the file into
/// a folder that every user can write to.
fn check_owner(file: &FileBeginning, folder: &Path) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let of_folder = folder.metadata().ok().map(|folder| folder.uid());
    if file.owner == own || file.owner == 0 || Some(file.owner) == of_folder {
        Ok(())
    } else {
        Err(format!("belongs to another user (uid {})", file.owner))
    }
}

#[cfg(test)]
mod tests;
