//! Live events for display, without reads of the log.

use allstop_core::CallId;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};

use super::event::{SessionEvent, SessionEventKind};

/// Events of a session from now on, including durable events. A recipient that lags too far receives the number of
/// missed events. The recipient never waits for the log.
#[derive(Debug)]
pub struct LiveEvents(EventSource);

#[derive(Debug)]
enum EventSource {
    Subscriber(broadcast::Receiver<SessionEvent>),
    Observer(mpsc::Receiver<SessionEvent>),
}

impl LiveEvents {
    pub(crate) fn of_subscriber(events: broadcast::Receiver<SessionEvent>) -> Self {
        Self(EventSource::Subscriber(events))
    }

    pub(crate) fn of_observer(events: mpsc::Receiver<SessionEvent>) -> Self {
        Self(EventSource::Observer(events))
    }

    /// Returns the next event; `None` if the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        match &mut self.0 {
            EventSource::Subscriber(events) => match events.recv().await {
                Ok(event) => Some(event),
                Err(RecvError::Lagged(count)) => Some(SessionEvent::missed(count)),
                Err(RecvError::Closed) => None,
            },
            EventSource::Observer(events) => events.recv().await,
        }
    }

    /// Skips to the start of the next tool call, and returns the call; `None` if the session is closed.
    ///
    /// # Cancel safety
    /// Events before the dropped future are skipped.
    pub async fn next_call(&mut self) -> Option<CallId> {
        loop {
            if let SessionEventKind::Live(event) = self.next().await?.kind
                && let Some(call) = event.started_call()
            {
                return Some(call.clone());
            }
        }
    }

    /// Returns the next event, if it has already arrived.
    pub fn try_next(&mut self) -> Option<SessionEvent> {
        match &mut self.0 {
            EventSource::Subscriber(events) => match events.try_recv() {
                Ok(event) => Some(event),
                Err(TryRecvError::Lagged(count)) => Some(SessionEvent::missed(count)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            },
            EventSource::Observer(events) => events.try_recv().ok(),
        }
    }
}
