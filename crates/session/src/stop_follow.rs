//! Follow-up of accepted stops. A stop is answered only after its receipt, the list of the stopped work, is complete
//! and in the log.

use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::receipt::{ConversationEffect, NothingToStop};
use tokio::time::{Duration, timeout};

use crate::inner::SessionInner;
use crate::stop_handle::{CompleteReceipt, SessionStop};
use crate::stop_list::StopList;

/// Maximum wait for the log to store a receipt. Afterwards the caller receives the receipt in any case.
const RECORD_MAX: Duration = Duration::from_secs(1);

impl SessionInner {
    /// Waits until the receipts of these stops are complete. The maximum wait for each stop is the sum of its grace
    /// period, its force period, and one second for the ending of a turn.
    pub(crate) async fn stops_complete(&self, which: impl Fn(&StopList) -> Option<SessionStop>) {
        loop {
            let completed = self.completed.notified();
            tokio::pin!(completed);
            // The wait is enabled before the check, so that no completion after the check is missed.
            completed.as_mut().enable();
            if which(&self.state.lock().stops).is_none() {
                return;
            }
            completed.await;
        }
    }

    /// Follows a stop until its receipt is complete and in the log.
    pub(crate) fn follow(self: &Arc<Self>, stop: SessionStop) {
        let following = Following {
            inner: Arc::clone(self),
            stop,
        };
        drop(self.host.scope.spawn_engine(async move {
            let Following { inner, stop } = &following;
            if let Some(complete) = stop.complete().await {
                inner.keep(stop, complete).await;
            }
        }));
    }

    /// Makes the owner of the session write a complete receipt, and answers the stop with this receipt.
    async fn keep(&self, stop: &SessionStop, complete: CompleteReceipt) {
        let CompleteReceipt {
            mut receipt,
            is_in_ending,
        } = complete;
        let changes_nothing =
            !stop.ends_turn() && receipt.conversation() == ConversationEffect::Unchanged;
        // An empty receipt is not recorded. Otherwise the end of each session would hide the receipt of the preceding
        // stop.
        if !is_in_ending && changes_nothing && !receipt.lists_work() {
            let request = receipt.request().clone();
            receipt = Arc::new(Receipt::empty(request, NothingToStop::AlreadyEnded));
        }
        let has_record = !is_in_ending && receipt.outcome().is_none();
        let is_log_free = {
            let mut state = self.state.lock();
            state.stops.finish(stop);
            if has_record {
                state.stops.complete(stop, Arc::clone(&receipt));
            }
            // The turn holds the log while it runs, and a sleeping session has no owner.
            let mut turn = state.queue.running().into_iter();
            state.awake.is_some() && turn.all(|turn| stop.ends(&turn.state))
        };
        self.changed.notify_one();
        self.completed.notify_waiters();
        if has_record && is_log_free {
            let _in_the_log_or_late = timeout(RECORD_MAX, stop.receipt()).await;
        }
        stop.answer(receipt);
    }
}

/// A followed stop. If the runtime shuts down first, waiters on other runtimes receive a receipt with the facts known
/// at that moment.
struct Following {
    inner: Arc<SessionInner>,
    stop: SessionStop,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.inner.state.lock().stops.finish(&self.stop);
        // Has no effect if the stop was already answered.
        self.stop.answer(self.stop.account_now());
    }
}
