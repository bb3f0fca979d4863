//! Messages of a session that wait for their turns.

use std::sync::Arc;

use allstop_core::{Cause, MessageId};

use crate::inner::{LockedState, SessionInner};
use crate::queued_turn::QueuedTurn;
use crate::session::Session;
use crate::stop_plan::StopTarget;

/// A message that waits. No model has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedMessage {
    /// Id of the message.
    pub id: MessageId,
    /// Text of the message.
    pub text: Arc<str>,
    /// True if the message waits for the next step of the running turn, and false if it waits for a separate turn.
    pub is_steered: bool,
}

impl Session {
    /// Messages that wait, in the order of their delivery.
    pub fn waiting(&self) -> Vec<QueuedMessage> {
        self.inner.state.lock().waiting()
    }

    /// Stops the turn of a waiting message. True if this request has stopped the turn; false if the message is unknown,
    /// or does not wait. A running turn is never stopped.
    pub fn withdraw(&self, message: &MessageId, cause: impl Into<Cause>) -> bool {
        let target = StopTarget::Message(message.clone());
        let waits = |state: &LockedState| {
            // From here on, the running turn cannot take the message.
            state.withdraw(message);
            let waiting = state.waiting();
            waiting.iter().any(|waiting| waiting.id == *message)
        };
        self.inner.request_stop_if(&target, cause.into(), waits).1
    }

    /// Waits until all messages have their outcomes that run or wait when this function is called. Messages that are
    /// sent later do not delay it.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops nothing.
    pub fn turns_before(&self) -> impl Future<Output = ()> + Send + use<> {
        let all = self.inner.open_turns();
        async move {
            for queued in all {
                queued.state.outcome().await;
            }
        }
    }
}

impl SessionInner {
    fn open_turns(&self) -> Vec<Arc<QueuedTurn>> {
        self.state.lock().queue.all().cloned().collect()
    }
}

impl LockedState {
    fn waiting(&self) -> Vec<QueuedMessage> {
        let running = self.queue.running();
        let has_taken = |id: &MessageId| running.is_some_and(|turn| turn.controls.has_taken(id));
        let described = |queued: &Arc<QueuedTurn>, is_steered: bool| {
            let id = queued.message()?.clone();
            if queued.scope.is_stopped() || (is_steered && has_taken(&id)) {
                return None;
            }
            Some(QueuedMessage {
                id,
                text: Arc::clone(&queued.prompt.text),
                is_steered,
            })
        };
        let steered = self.queue.steered();
        let steered = steered.filter_map(|queued| described(queued, true));
        let waiting = self.queue.waiting();
        let waiting = waiting.filter_map(|queued| described(queued, false));
        steered.chain(waiting).collect()
    }
}
