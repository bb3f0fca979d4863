//! An accepted stop: one id, one cause, and one receipt for all callers that request it.

use std::sync::Arc;

use allstop_agent::ENDING_MAX;
use allstop_core::Receipt;
use allstop_core::receipt::{NothingToStop, ReceiptItem, StopInfo};
use allstop_scope::Stop;
use futures::future::BoxFuture;
use tokio::sync::SetOnce;
use tokio::time::timeout;

use crate::message::MessageState;

/// An accepted stop, or the result that there was nothing to stop. Dropping the handle changes nothing.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct SessionStop(Arc<SharedStop>);

#[derive(Debug)]
struct SharedStop {
    request: StopInfo,
    progress: StopProgress,
}

#[derive(Debug)]
enum StopProgress {
    /// There was nothing to stop.
    Answered(Arc<Receipt>),
    /// The stop is in progress. The receipt is set once.
    Running(RunningStop, SetOnce<Arc<Receipt>>),
}

/// A stop in progress.
#[derive(Debug)]
pub(crate) struct RunningStop {
    pub(crate) stop: Stop,
    /// State of the message that belongs to the turn that the stop ends.
    pub(crate) turn: Option<Arc<MessageState>>,
    /// True if another turn ran at the time of the stop, so that the stopped turn, which waits for it, ends later.
    pub(crate) has_turn_ahead: bool,
    /// Receipt items for work in the extent of the stop (the work that the stop covers) that could not be moved into a
    /// scope.
    pub(crate) unattached: Vec<ReceiptItem>,
    /// Receipt items for work that runs outside the extent and is in no scope.
    pub(crate) outside: Vec<ReceiptItem>,
}

/// A complete receipt. `is_in_ending` is true if the log contains the receipt as part of the turn's ending.
pub(crate) struct CompleteReceipt {
    pub(crate) receipt: Arc<Receipt>,
    pub(crate) is_in_ending: bool,
}

/// Waits for the receipt.
impl IntoFuture for SessionStop {
    type Output = Arc<Receipt>;
    type IntoFuture = BoxFuture<'static, Arc<Receipt>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.receipt().await })
    }
}

impl SessionStop {
    /// Creates a stop that is already answered, for a target without work.
    pub(crate) fn answered(receipt: Receipt) -> Self {
        Self(Arc::new(SharedStop {
            request: receipt.request().clone(),
            progress: StopProgress::Answered(Arc::new(receipt)),
        }))
    }

    pub(crate) fn carried_out(running: RunningStop) -> Self {
        Self(Arc::new(SharedStop {
            request: running.stop.request().clone(),
            progress: StopProgress::Running(running, SetOnce::new()),
        }))
    }

    fn running(&self) -> Option<&RunningStop> {
        match &self.0.progress {
            StopProgress::Answered(_) => None,
            StopProgress::Running(running, _) => Some(running),
        }
    }

    /// The request.
    pub fn request(&self) -> &StopInfo {
        &self.0.request
    }

    /// True if there was nothing to stop at the time of acceptance.
    pub fn found_nothing(&self) -> bool {
        let running = self.running();
        running.is_none_or(|running| running.stop.found_nothing())
    }

    /// True if the stop ends a turn.
    pub(crate) fn ends_turn(&self) -> bool {
        self.running().is_some_and(|running| running.turn.is_some())
    }

    /// True if the stop ends this turn.
    pub(crate) fn ends(&self, turn: &Arc<MessageState>) -> bool {
        let own = self.running().and_then(|running| running.turn.as_ref());
        own.is_some_and(|own| Arc::ptr_eq(own, turn))
    }

    /// Ends the grace period of the stop and forces the remaining work now.
    pub fn force(&self) {
        if let Some(running) = self.running() {
            running.stop.force();
        }
    }

    /// Waits for the receipt. The maximum wait is the sum of grace period, force period, one second for the ending of a
    /// turn, and one second for the log. When this function returns, the log contains the receipt, unless the log does
    /// not answer, or a running turn uses the log.
    ///
    /// # Cancel safety
    /// Cancel safe: the stop continues even if no caller waits.
    pub async fn receipt(&self) -> Arc<Receipt> {
        Arc::clone(match &self.0.progress {
            StopProgress::Answered(receipt) => receipt,
            StopProgress::Running(_, receipt) => receipt.wait().await,
        })
    }

    /// Returns the receipt if it is complete, or else a receipt with the facts known now. For callers that cannot wait.
    pub fn account_now(&self) -> Arc<Receipt> {
        match &self.0.progress {
            StopProgress::Answered(receipt) => Arc::clone(receipt),
            StopProgress::Running(running, receipt) => match receipt.get() {
                Some(receipt) => Arc::clone(receipt),
                None => running.complete(&running.stop.account_now()).receipt,
            },
        }
    }

    /// Sends the receipt to all waiters. Only the first call has an effect.
    pub(crate) fn answer(&self, receipt: Arc<Receipt>) {
        if let StopProgress::Running(_, own) = &self.0.progress {
            drop(own.set(receipt));
        }
    }

    /// Waits until all facts of the receipt are known, or until their time limit has passed. `None` if there was
    /// nothing to stop.
    pub(crate) async fn complete(&self) -> Option<CompleteReceipt> {
        let running = self.running()?;
        let receipt = running.stop.receipt().await;
        if let Some(turn) = &running.turn
            && receipt.outcome().is_none()
            && !running.has_turn_ahead
        {
            // Whether the turn has ended or not, the receipt contains the facts known by then.
            let _ended_or_not = timeout(ENDING_MAX, turn.outcome()).await;
        }
        Some(running.complete(&receipt))
    }
}

impl RunningStop {
    /// Adds the facts that the session knows now to the receipt of the stopped scopes.
    fn complete(&self, receipt: &Arc<Receipt>) -> CompleteReceipt {
        let new = |receipt| CompleteReceipt {
            receipt: Arc::new(receipt),
            is_in_ending: false,
        };
        let receipt = Receipt::clone(receipt).with_items_of_extent(self.unattached.clone());
        let Some(turn) = &self.turn else {
            return new(self.name_outside(receipt));
        };
        if receipt.outcome().is_some() {
            // The stop found no work. While the commit is being written, the ending of the turn is not confirmed yet.
            return new(if turn.is_settled() {
                receipt
            } else {
                turn.complete_now(&receipt)
            });
        }
        let outcome = turn.try_outcome();
        let written = outcome.as_ref().filter(|outcome| outcome.is_ending_written);
        if let Some(ending) = written.and_then(|outcome| outcome.receipt.as_ref())
            && ending.is_of_same_work(&receipt)
        {
            return CompleteReceipt {
                receipt: Arc::clone(ending),
                is_in_ending: true,
            };
        }
        let is_completed = outcome.is_some_and(|outcome| outcome.is_completed());
        if is_completed && !receipt.lists_work() {
            // The turn was committed before the stop, and no other work ran.
            let request = receipt.request().clone();
            return new(Receipt::empty(request, NothingToStop::AlreadyEnded));
        }
        new(self.name_outside(turn.complete_now(&receipt)))
    }

    /// Adds receipt items for the work outside the extent.
    fn name_outside(&self, receipt: Receipt) -> Receipt {
        if receipt.outcome().is_some() {
            return receipt;
        }
        receipt.with_outside_items(self.outside.iter().cloned())
    }
}
