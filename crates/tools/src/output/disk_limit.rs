//! Limits on the disk space of output files.

use std::fmt;

use allstop_core::counted::{byte_size, counted};

/// A limit that an output file has reached, with its number of bytes. The text is the reason for people and models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskLimit {
    /// Limit of one file.
    File(u64),
    /// Limit of all files of a session.
    Session(u64),
    /// Limit of all files of the store.
    Store(u64),
}

/// Beginning of the note that replaces a removed file.
pub(super) const NOTE_BEGINNING: &str = "[Allstop removed this output of ";

impl DiskLimit {
    /// Maximum number of bytes.
    pub(super) fn bytes_max(self) -> u64 {
        match self {
            Self::File(max) | Self::Session(max) | Self::Store(max) => max,
        }
    }

    /// Line at the end of a file whose output continues.
    pub(super) fn end_line(self) -> String {
        format!("\n[further output is not kept: {self}]\n")
    }

    /// Content of the file that replaces a removed file of this size.
    pub(super) fn removal_note(self, bytes: u64) -> String {
        let bytes = counted(bytes, "byte", "bytes");
        format!("{NOTE_BEGINNING}{bytes}: {self}]\n")
    }
}

impl fmt::Display for DiskLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, max) = match self {
            Self::File(max) => ("the output file", max),
            Self::Session(max) => ("the output files of the session", max),
            Self::Store(max) => ("the output files of all sessions", max),
        };
        let verb = match self {
            Self::File(_) => "has",
            Self::Session(_) | Self::Store(_) => "have",
        };
        write!(f, "{files} {verb} reached the limit of {}", byte_size(*max))
    }
}
