//! Calls of sub-agents, for the log of the turn that waits for them. A sub-agent queues the starts and ends of its calls,
//! and the turn takes them, writes them, and confirms the starts.
//!
//! Invariants:
//! 1. A start is confirmed only after its record is durable, or after the sub-agent has moved to the background.
//! 2. The records of a call have the order of its start and its end.
//!
//! The queue is bounded by the calls that the sub-agents of the turn run: a call has one start and one end, and does not
//! run before its start is confirmed.

use std::sync::{Arc, Weak};

use allstop_core::CallId;
use allstop_core::record::{CallOutcome, StartedCall};
use allstop_core::turn::Conversation;
use allstop_tools::{CallJournal, JournalClosed};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Start or end of a nested call.
#[derive(Debug)]
pub(crate) enum NestedCallEvent {
    Began(StartedCall),
    Ended {
        id: CallId,
        outcome: CallOutcome,
        content: Arc<str>,
    },
}

/// The calls of a turn's sub-agents.
#[derive(Debug, Default)]
pub(crate) struct NestedCalls {
    /// Weak, because the calls of a turn keep this value longer than the turn. The next turn would otherwise copy the
    /// conversation.
    conversation: Weak<Conversation>,
    queue: Mutex<NestedCallQueue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct NestedCallQueue {
    events: Vec<NestedCallEvent>,
    /// Confirmations of the starts in `events`.
    queued: Vec<oneshot::Sender<()>>,
    /// Confirmations of the starts that the turn has taken.
    taken: Vec<oneshot::Sender<()>>,
    is_closed: bool,
}

impl NestedCalls {
    /// Creates the queue of a turn. `conversation` is the conversation before the turn.
    pub(crate) fn new(conversation: &Arc<Conversation>) -> Self {
        Self {
            conversation: Arc::downgrade(conversation),
            ..Self::default()
        }
    }

    /// Waits for an event.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn changed(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.queue.lock().events.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Takes the events since the last call of this function.
    pub(crate) fn take(&self) -> Vec<NestedCallEvent> {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        queue.taken.append(&mut queue.queued);
        std::mem::take(&mut queue.events)
    }

    /// Lets the calls run whose starts were taken. Called after the append of their records.
    pub(crate) fn confirm(&self) {
        let taken = std::mem::take(&mut self.queue.lock().taken);
        for waiting in taken {
            // The sub-agent may have been stopped meanwhile.
            let _stopped = waiting.send(());
        }
    }

    /// Refuses all starts that are not confirmed, and all later ones. Called at the end of the turn.
    pub(crate) fn close(&self) {
        *self.queue.lock() = NestedCallQueue {
            is_closed: true,
            ..NestedCallQueue::default()
        };
    }
}

impl CallJournal for NestedCalls {
    fn begin(&self, calls: Vec<StartedCall>) -> BoxFuture<'static, Result<(), JournalClosed>> {
        let (tx, confirmed) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            // The sender is dropped after the end of the turn, which refuses the start.
            if !queue.is_closed {
                let began = calls.into_iter().map(NestedCallEvent::Began);
                queue.events.extend(began);
                queue.queued.push(tx);
            }
        }
        self.changed.notify_one();
        async move { confirmed.await.map_err(|_| JournalClosed) }.boxed()
    }

    fn end(&self, id: CallId, outcome: CallOutcome, content: Arc<str>) {
        let mut queue = self.queue.lock();
        if !queue.is_closed {
            queue.events.push(NestedCallEvent::Ended {
                id,
                outcome,
                content,
            });
        }
        drop(queue);
        self.changed.notify_one();
    }

    fn conversation(&self) -> Arc<Conversation> {
        self.conversation.upgrade().unwrap_or_default()
    }
}
