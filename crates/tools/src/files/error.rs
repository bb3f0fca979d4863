//! Errors of the file tools, worded for the model.

use std::io;

use allstop_core::ImageError;

/// Reason why a file tool did nothing, or only a part of its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("`{path}` is outside the working directory `{folder}`")]
    Outside { path: String, folder: String },
    #[error("`{path}` may be read but not written")]
    ReadOnly { path: String },
    #[error(
        "`{path}` belongs to Allstop (its store, or a file with its secrets or configuration): file tools neither read nor change it"
    )]
    Reserved { path: String },
    #[error(
        "`{path}` belongs to git, which may run what stands there: file tools read it, and do not change it; use the git command"
    )]
    OfGit { path: String },
    #[error("`{path}` does not exist")]
    NotFound { path: String },
    #[error("`{path}` is a folder")]
    IsFolder { path: String },
    #[error("`{path}` is not a folder")]
    NotAFolder { path: String },
    #[error("`{path}` is {kind}, not a regular file")]
    NotAFile { path: String, kind: &'static str },
    #[error("`{path}` is a symbolic link to something that does not exist")]
    Dangling { path: String },
    #[error("`{path}` changed while it was being opened; nothing was done")]
    Swapped { path: String },
    #[error("another program changed `{path}` meanwhile; nothing was written; read it again")]
    ChangedBeneath { path: String },
    #[error(
        "`{path}` is no longer what the user saw when asked about this call; nothing was written; read it again"
    )]
    ChangedSinceShown { path: String },
    #[error("`{path}` is a binary file of {bytes} bytes")]
    Binary { path: String, bytes: u64 },
    #[error("`{path}`: {error}")]
    Image { path: String, error: ImageError },
    #[error("`{path}` has {bytes} bytes, more than the {bytes_max} that can be edited")]
    TooLarge {
        path: String,
        bytes: u64,
        bytes_max: u64,
    },
    #[error("`{path}` ends at line {lines}; offset {offset} is past the end")]
    PastTheEnd {
        path: String,
        lines: u64,
        offset: u64,
    },
    #[error("{0}")]
    Edit(String),
    #[error("the pattern is invalid: {0}")]
    Pattern(String),
    #[error("stopped; nothing was changed")]
    Stopped,
    #[error("{action} `{path}`: {source}")]
    Io {
        action: &'static str,
        path: String,
        source: io::Error,
    },
}

impl FileError {
    /// Returns a converter from operating system errors, which adds the failed action.
    pub(crate) fn io(action: &'static str, path: &str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Io {
            action,
            path: path.to_owned(),
            source: errno.into(),
        }
    }
}
