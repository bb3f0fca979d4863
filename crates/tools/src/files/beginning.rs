//! The beginning of a file, for callers that need a bounded part of the file without a tool call.

use std::io::Read as _;

use super::error::FileError;
use super::open;
use super::workspace::{FolderAccess, Workspace};
use crate::tool::ToolError;

/// Beginning of a regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBeginning {
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// Size of the whole file, in bytes.
    pub len: u64,
    /// Id of the user who owns the file.
    pub owner: u32,
}

impl Workspace {
    /// Reads at most `bytes_max` bytes of a file; `None` if the file does not exist. May wait for a slow disk.
    ///
    /// # Errors
    /// If the path leads out of the allowed folders or to an entry that is not a regular file, or if the file cannot be
    /// read.
    pub fn read_beginning(
        &self,
        path: &str,
        bytes_max: usize,
    ) -> Result<Option<FileBeginning>, ToolError> {
        match self.beginning(path, bytes_max) {
            Ok(beginning) => Ok(Some(beginning)),
            Err(FileError::NotFound { .. }) => Ok(None),
            Err(error) => Err(ToolError::new(error.to_string())),
        }
    }

    fn beginning(&self, path: &str, bytes_max: usize) -> Result<FileBeginning, FileError> {
        let located = self.locate(path, FolderAccess::Read)?;
        let (file, stat) = open::file(&located)?;
        let mut bytes = Vec::new();
        file.take(bytes_max as u64)
            .read_to_end(&mut bytes)
            .map_err(|source| FileError::Io {
                action: "could not read",
                path: located.shown,
                source,
            })?;
        Ok(FileBeginning {
            bytes,
            len: u64::try_from(stat.st_size).unwrap_or_default(),
            owner: stat.st_uid,
        })
    }
}
