//! The incomplete part of an answer.

use super::stream::AnswerStream;
use crate::{FlowPart, OpenText};

/// A copy of the incomplete part. The writer thread draws the copy as if the answer ended there.
#[derive(Debug)]
pub(super) struct OpenAnswer {
    stream: AnswerStream,
}

impl OpenAnswer {
    pub(super) fn new(stream: AnswerStream) -> Self {
        Self { stream }
    }
}

impl OpenText for OpenAnswer {
    fn parts(&self) -> Vec<FlowPart> {
        self.stream.clone().finish()
    }
}
