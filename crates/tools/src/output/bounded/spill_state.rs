//! State of an output file, from its first byte until its removal.
//!
//! Invariants:
//! 1. The file is open until the output has ended. Open files have a lock, so they are never removed for other output.
//! 2. A file that ended at a limit has one line after the output, which names the limit.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::spill::SpillWritten;
use crate::output::disk_limit::DiskLimit;

#[derive(Debug)]
pub(super) enum SpillState {
    /// The whole output fits into memory so far.
    NotYet,
    /// The output has no file, and its middle is dropped.
    NoFile,
    /// The file accepts more output.
    Open {
        file: Arc<File>,
        path: PathBuf,
        written: u64,
    },
    /// The output has ended, and the file has all of it.
    Closed { path: PathBuf, written: u64 },
    /// A limit was reached. Without a path, the limit left no space for a file.
    Full {
        file: Option<Arc<File>>,
        path: Option<PathBuf>,
        written: u64,
        limit: DiskLimit,
    },
    /// Writing failed. The file, if any, is complete up to `written`.
    Failed {
        file: Option<Arc<File>>,
        path: Option<PathBuf>,
        written: u64,
        error: String,
    },
    /// The file was removed after the end of the output. The path may refer to a note.
    Removed { path: PathBuf },
}

/// A file that can be read.
#[derive(Debug, Clone)]
pub(in crate::output) struct ReadableFile {
    pub(super) path: PathBuf,
    /// Number of bytes of the output in the file; `None` while the file can grow.
    pub(super) len: Option<u64>,
    /// True if the file is open, so that it cannot be removed.
    is_locked: bool,
}

impl ReadableFile {
    /// True if the file no longer has the output. Reads the folder, so the disk may delay this function.
    pub(in crate::output) fn is_removed(&self) -> bool {
        let Some(len) = self.len.filter(|_| !self.is_locked) else {
            return false;
        };
        match fs::metadata(&self.path) {
            // The note in place of an output is shorter than the output.
            Ok(metadata) => metadata.len() < len,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

impl SpillState {
    /// The state after a write.
    pub(super) fn after(self, done: SpillWritten) -> Self {
        let (file, path, before) = match (self, done.created) {
            (Self::NotYet, Some((file, path))) => (Some(file), Some(path), 0),
            (Self::NotYet, None) => (None, None, 0),
            (
                Self::Open {
                    file,
                    path,
                    written,
                },
                _,
            ) => (Some(file), Some(path), written),
            (ended, _) => return ended,
        };
        let written = before + done.written;
        match (done.error, done.limit, file, path) {
            (None, None, Some(file), Some(path)) => Self::Open {
                file,
                path,
                written,
            },
            (None, Some(limit), file, path) => Self::Full {
                file,
                path,
                written,
                limit,
            },
            (error, _, file, path) => Self::Failed {
                file,
                path,
                written,
                error: error.unwrap_or_default(),
            },
        }
    }

    /// The state after the end of the output.
    pub(super) fn closed(self) -> Self {
        match self {
            Self::Open { path, written, .. } => Self::Closed { path, written },
            Self::Full {
                path,
                written,
                limit,
                ..
            } => Self::Full {
                file: None,
                path,
                written,
                limit,
            },
            Self::Failed {
                path,
                written,
                error,
                ..
            } => Self::Failed {
                file: None,
                path,
                written,
                error,
            },
            closed => closed,
        }
    }

    /// The state after another process or output has removed the file.
    pub(super) fn removed(self) -> Self {
        match self {
            Self::Closed { path, .. }
            | Self::Full {
                path: Some(path), ..
            }
            | Self::Failed {
                path: Some(path), ..
            } => Self::Removed { path },
            without_file => without_file,
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::NotYet | Self::NoFile => None,
            Self::Open { path, .. } | Self::Closed { path, .. } | Self::Removed { path } => {
                Some(path)
            }
            Self::Full { path, .. } | Self::Failed { path, .. } => path.as_deref(),
        }
    }

    pub(super) fn readable(&self) -> Option<ReadableFile> {
        let (path, len, is_locked) = match self {
            Self::NotYet | Self::NoFile | Self::Removed { .. } => return None,
            Self::Open { path, .. } => (path, None, true),
            Self::Closed { path, written } => (path, Some(*written), false),
            Self::Full {
                file,
                path,
                written,
                ..
            }
            | Self::Failed {
                file,
                path,
                written,
                ..
            } => (path.as_ref()?, Some(*written), file.is_some()),
        };
        Some(ReadableFile {
            path: path.clone(),
            len,
            is_locked,
        })
    }

    /// Place of the bytes that the text leaves out.
    pub(super) fn location_of_the_rest(&self) -> String {
        match self {
            Self::NotYet => "they are being written".to_owned(),
            Self::NoFile => "redirect the output to a file to keep all of it".to_owned(),
            Self::Open { path, .. } | Self::Closed { path, .. } => {
                format!("the whole output is in {}", path.display())
            }
            Self::Full {
                path: Some(path),
                written,
                limit,
                ..
            } => {
                let path = path.display();
                format!("the first {written} bytes are in {path}, then {limit}")
            }
            Self::Full {
                path: None, limit, ..
            } => format!("they are lost, because {limit}"),
            Self::Failed {
                path: Some(path),
                written,
                error,
                ..
            } => {
                format!(
                    "the first {written} bytes are in {}, then writing failed: {error}",
                    path.display()
                )
            }
            Self::Failed {
                path: None, error, ..
            } => {
                format!("they are lost, because no file could be created: {error}")
            }
            Self::Removed { path } => {
                format!("they were removed from {} to free space", path.display())
            }
        }
    }

    /// Place of the output of background work, for lists; `None` without a file.
    pub(super) fn place(&self) -> Option<String> {
        let path = self.path()?.display();
        Some(match self {
            Self::Full { written, limit, .. } => {
                format!("the first {written} bytes of the output in {path}, then {limit}")
            }
            Self::Failed { written, error, .. } => {
                format!(
                    "the first {written} bytes of the output in {path}, then writing failed: {error}"
                )
            }
            Self::Removed { .. } => format!("output removed from {path} to free space"),
            _ => format!("output in {path}"),
        })
    }
}
