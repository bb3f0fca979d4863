//! Writer of an execution's events. The executor holds the sending half of the event queue.

use std::fmt;

use tokio::sync::mpsc;

use crate::model::TaskEvent;

/// Writes events of one execution, in order. Clones write to the same execution.
#[derive(Clone)]
pub struct EventWriter {
    events: mpsc::Sender<TaskEvent>,
}

/// Error: the execution has ended. The event was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the execution has ended")]
pub struct ExecutionEnded;

impl EventWriter {
    /// Creates an event queue of this length. The writer waits while the queue is full.
    pub(crate) fn new(queue_len_max: usize) -> (Self, mpsc::Receiver<TaskEvent>) {
        let (events, queue) = mpsc::channel(queue_len_max.max(1));
        (Self { events }, queue)
    }

    /// Writes an event. Events are stored and published in the order of the calls. Clients receive an event only after
    /// the event is durable.
    ///
    /// # Errors
    /// If the execution has ended. The executor should then return.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call has written nothing.
    pub async fn write(&self, event: TaskEvent) -> Result<(), ExecutionEnded> {
        self.events.send(event).await.map_err(|_| ExecutionEnded)
    }

    /// Resolves when the execution accepts no more events.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) {
        self.events.closed().await;
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter")
            .field("is_closed", &self.events.is_closed())
            .finish()
    }
}
