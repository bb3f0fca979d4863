//! A slice of an output, from an offset.

use crate::output::SharedOutput;

/// A slice of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSlice {
    /// Text of the slice.
    pub text: String,
    /// Offset of the next slice.
    pub next_offset: u64,
    /// Number of bytes that the work has printed so far, from its start.
    pub total_bytes: u64,
    /// Number of bytes between the requested offset and the text. These bytes are neither in memory nor in the file.
    pub missing_bytes: u64,
}

impl OutputSlice {
    pub(super) fn read(output: &SharedOutput, offset: u64, bytes_max: usize) -> Self {
        let piece = output.piece(offset, bytes_max);
        Self {
            next_offset: piece.start + piece.bytes.len() as u64,
            text: String::from_utf8_lossy(&piece.bytes).into_owned(),
            total_bytes: piece.total,
            missing_bytes: piece.start - offset.min(piece.start),
        }
    }
}
