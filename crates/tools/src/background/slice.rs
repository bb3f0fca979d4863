//! A part of an output, from an offset on.

use crate::output::SharedOutput;

/// A part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSlice {
    /// What stands there.
    pub text: String,
    /// Where to go on.
    pub next_offset: u64,
    /// How many bytes there were so far, from the start on.
    pub total_bytes: u64,
    /// Bytes between the offset that was asked for and the text: neither memory nor the file has them any more.
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
