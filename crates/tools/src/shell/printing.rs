//! What a command prints, on its way to the answer and to whoever watches.

use crate::call_link::CallLink;
use crate::output::{BoundedOutput, without_cut_end};

/// The output of a command that the model waits for.
pub(super) struct Printing {
    pub(super) output: BoundedOutput,
    link: CallLink,
    /// The first bytes of a character, whose rest is not there yet: not shown so far.
    cut: Vec<u8>,
}

impl Printing {
    pub(super) fn new(output: BoundedOutput, link: CallLink) -> Self {
        Self {
            output,
            link,
            cut: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, piece: &[u8]) {
        self.output.push(piece);
        self.cut.extend_from_slice(piece);
        let whole = without_cut_end(&self.cut).len();
        self.link.output(&String::from_utf8_lossy(
            self.cut.get(..whole).unwrap_or_default(),
        ));
        self.cut.drain(..whole);
    }
}
