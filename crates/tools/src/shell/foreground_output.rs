//! The output of a command, on its way to the answer and to the observer of the call.

use crate::call_link::CallLink;
use crate::output::{BoundedOutput, without_cut_end};

/// Output of a command in the foreground.
pub(super) struct ForegroundOutput {
    pub(super) bounded: BoundedOutput,
    link: CallLink,
    /// First bytes of an incomplete character at the end, not shown yet.
    cut: Vec<u8>,
}

impl ForegroundOutput {
    pub(super) fn new(output: BoundedOutput, link: CallLink) -> Self {
        Self {
            bounded: output,
            link,
            cut: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, piece: &[u8]) {
        self.bounded.push(piece);
        self.cut.extend_from_slice(piece);
        let whole = without_cut_end(&self.cut).len();
        self.link.output(&String::from_utf8_lossy(
            self.cut.get(..whole).unwrap_or_default(),
        ));
        self.cut.drain(..whole);
    }
}
