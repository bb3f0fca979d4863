//! Live events without the log, for display.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::event::SessionEvent;

/// Events of a session from now on, including durable events. A subscriber that lags too far gets the number of missed
/// events, and never waits for the log.
#[derive(Debug)]
pub struct LiveEvents(Receiver<SessionEvent>);

impl LiveEvents {
    pub(crate) fn new(events: Receiver<SessionEvent>) -> Self {
        Self(events)
    }

    /// The next event; `None` when the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(SessionEvent::missed(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Returns the next event, if it has already arrived.
    pub fn try_next(&mut self) -> Option<SessionEvent> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(count)) => Some(SessionEvent::missed(count)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}
