//! Order of the permission questions of a step. The admissions of a step run in parallel, but a person gets their
//! questions in the order of the calls, and only after the log contains the end of the model call.
//!
//! A question waits only for the earlier calls that have a question at the same time. So a slow hook of one call delays
//! no question of another call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Maximum time that a question waits for earlier questions, such as for their previews. A preview takes milliseconds;
/// a preview that hangs must not hide the questions of the other calls.
const EARLIER_QUESTIONS_MAX: Duration = Duration::from_secs(1);

/// The questions of a step that are not asked yet.
#[derive(Debug, Clone, Default)]
pub(super) struct QuestionOrder(Arc<watch::Sender<UnaskedQuestions>>);

#[derive(Debug, Default)]
struct UnaskedQuestions {
    /// True after the log contains the end of the model call.
    is_open: bool,
    /// Positions of their calls.
    positions: BTreeSet<usize>,
}

/// Place of one question in the order. Dropping it lets the next question through.
#[derive(Debug)]
#[must_use = "dropping it gives up the place"]
pub(super) struct QuestionPlace {
    order: QuestionOrder,
    position: usize,
}

impl QuestionOrder {
    /// Lets questions through.
    pub(super) fn open(&self) {
        self.0
            .send_if_modified(|unasked| !std::mem::replace(&mut unasked.is_open, true));
    }

    /// Takes the place for the question about the call at this position.
    pub(super) fn take_place(&self, position: usize) -> QuestionPlace {
        self.0.send_modify(|unasked| {
            unasked.positions.insert(position);
        });
        QuestionPlace {
            order: self.clone(),
            position,
        }
    }
}

impl QuestionPlace {
    /// Waits until this question may be asked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn is_next(&self) {
        let mut changes = self.order.0.subscribe();
        // Neither wait fails, because the sender exists as long as `self`.
        drop(changes.wait_for(|unasked| unasked.is_open).await);
        let is_next = changes.wait_for(|unasked| unasked.positions.first() == Some(&self.position));
        drop(tokio::time::timeout(EARLIER_QUESTIONS_MAX, is_next).await);
    }
}

impl Drop for QuestionPlace {
    fn drop(&mut self) {
        self.order.0.send_modify(|unasked| {
            unasked.positions.remove(&self.position);
        });
    }
}
