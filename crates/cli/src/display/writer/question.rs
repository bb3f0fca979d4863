//! A question on a terminal, during which nothing else is written to it.

use std::sync::Arc;

use super::super::styled::Styled;
use super::lane::{Keep, Lane, Piece};

impl Lane {
    /// Shows a question and holds everything else back until the returned value is dropped or ended.
    pub(crate) fn question(&self, text: Styled) -> Asked {
        let id = {
            let mut state = self.shared().state.lock();
            state.questions += 1;
            state.questions
        };
        self.push(text.into_string(), true, Keep::Must, Some(id));
        Asked {
            lane: self.clone(),
            id,
            closing: None,
        }
    }
}

/// A question that is shown, or is about to be. Dropping it withdraws it.
#[derive(Debug)]
#[must_use = "dropping it withdraws the question"]
pub(crate) struct Asked {
    lane: Lane,
    id: u64,
    closing: Option<&'static str>,
}

impl Asked {
    /// What to write when it is over, control sequences included: nothing, if the person's answer has ended the line
    /// already.
    pub(crate) fn close_with(&mut self, closing: &'static str) {
        self.closing = Some(closing).filter(|text| !text.is_empty());
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let shared = self.lane.shared();
        let mut state = shared.state.lock();
        let waiting = state
            .queue
            .iter()
            .position(|piece| piece.question == Some(self.id));
        if let Some(at) = waiting {
            // Never shown: nothing has to be taken back.
            let piece = state.queue.remove(at);
            state.queued_bytes -= piece.map_or(0, |piece| piece.text.len());
        } else if let Some(text) = self.closing.take() {
            state.queued_bytes += text.len();
            let file = Arc::clone(&self.lane.file);
            state.queue.push_front(Piece {
                file,
                text: text.to_owned(),
                on_new_line: false,
                question: None,
            });
        }
        if state.held_by == Some(self.id) {
            state.held_by = None;
        }
        shared.work.notify_one();
    }
}
