//! Distribution of events to subscribers.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{AgentEvent, EventSink};
use allstop_core::record::SessionRecord;
use allstop_core::{MessageId, TurnNumber};
use allstop_log::Version;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc};

use super::event::{SessionEvent, SessionEventKind};
use crate::queued_turn::QueuedTurn;

/// Maximum number of events that wait for a subscriber. A subscriber that lags further misses the oldest events. A long
/// answer has about this many deltas.
const EVENTS_KEPT_MAX: usize = 1_024;

/// Distribution of events. A session without subscribers and observers builds no events.
#[derive(Debug, Default)]
pub(crate) struct EventHub {
    state: Mutex<HubState>,
}

#[derive(Debug, Default)]
struct HubState {
    tx: Option<broadcast::Sender<SessionEvent>>,
    turn: Option<TurnNumber>,
    message: Option<MessageId>,
    /// The last turn whose start is durable.
    last_turn: Option<TurnNumber>,
    closed: bool,
    /// Number of subscriptions so far.
    subscribers: u64,
    observers: Vec<EventObserver>,
}

/// Recipient of events that does not count as a subscriber. Its queue uses memory only for waiting events.
#[derive(Debug)]
struct EventObserver {
    tx: mpsc::Sender<SessionEvent>,
    /// Number of events that were not sent because the queue was full.
    missed: u64,
}

impl EventObserver {
    /// Sends an event, or counts it as missed. Returns false if the observer is gone.
    fn send(&mut self, event: &SessionEvent) -> bool {
        let missed = (self.missed > 0).then(|| SessionEvent::missed(self.missed));
        for event in missed.into_iter().chain([event.clone()]) {
            match self.tx.try_send(event) {
                Ok(()) => self.missed = 0,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.missed += 1;
                    break;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
        }
        true
    }
}

impl HubState {
    fn event(&self, kind: SessionEventKind) -> SessionEvent {
        SessionEvent {
            turn: self.turn,
            message: self.message.clone(),
            kind,
        }
    }
}

impl EventHub {
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        let mut state = self.state.lock();
        let tx = state
            .tx
            .get_or_insert_with(|| broadcast::channel(EVENTS_KEPT_MAX).0);
        let rx = tx.subscribe();
        state.subscribers += 1;
        if state.closed {
            // The subscribers read the remaining events from the log.
            state.tx = None;
        }
        rx
    }

    /// Adds an observer. An observer does not keep permission questions open.
    pub(crate) fn observe(&self) -> mpsc::Receiver<SessionEvent> {
        let (tx, rx) = mpsc::channel(EVENTS_KEPT_MAX);
        let mut state = self.state.lock();
        if !state.closed {
            state.observers.push(EventObserver { tx, missed: 0 });
        }
        rx
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        (state.closed, state.tx) = (true, None);
        state.observers.clear();
    }

    /// True if the session has a subscriber.
    pub(crate) fn is_watched(&self) -> bool {
        let mut state = self.state.lock();
        // Drops the channel after its last subscriber leaves.
        state.tx = state.tx.take().filter(|tx| tx.receiver_count() > 0);
        state.tx.is_some()
    }

    /// Waits until the session has had no subscriber for this time without interruption.
    ///
    /// Cancel safe.
    pub(crate) async fn unwatched_for(&self, for_long: Duration) {
        loop {
            let (tx, before) = {
                let state = self.state.lock();
                (state.tx.clone(), state.subscribers)
            };
            if let Some(tx) = tx {
                tx.closed().await;
            }
            tokio::time::sleep(for_long).await;
            let has_come = self.state.lock().subscribers != before;
            if !has_come && !self.is_watched() {
                return;
            }
        }
    }

    /// Assigns the following events to the turn of this message.
    pub(crate) fn begin(&self, message: Option<MessageId>) {
        let mut state = self.state.lock();
        (state.turn, state.message) = (None, message);
    }

    /// Builds events for a subscriber that arrives during the running turn.
    pub(crate) fn events(
        &self,
        kinds: impl Iterator<Item = SessionEventKind>,
    ) -> Vec<SessionEvent> {
        let state = self.state.lock();
        kinds.map(|kind| state.event(kind)).collect()
    }

    pub(crate) fn send(&self, kind: impl FnOnce() -> SessionEventKind) {
        let mut state = self.state.lock();
        if state.tx.is_none() && state.observers.is_empty() {
            return;
        }
        let event = state.event(kind());
        state.observers.retain_mut(|observer| observer.send(&event));
        if let Some(tx) = &state.tx {
            // Subscribers attach and detach, so a channel without subscribers is not an error.
            drop(tx.send(event));
        }
    }

    /// The last turn whose start was published.
    pub(crate) fn last_turn(&self) -> Option<TurnNumber> {
        self.state.lock().last_turn
    }

    /// Publishes a record that has become durable.
    pub(crate) fn record(&self, version: Version, record: &SessionRecord) {
        if let SessionRecord::TurnStarted { turn, .. } = record {
            let mut state = self.state.lock();
            (state.turn, state.last_turn) = (Some(*turn), Some(*turn));
        }
        self.send(|| SessionEventKind::Recorded {
            version,
            record: Arc::new(record.clone()),
        });
    }

    /// Sink for the events of a turn. After a stop of the turn, drops events with parts of the answer.
    pub(crate) fn sink(self: &Arc<Self>, queued: &Arc<QueuedTurn>) -> EventSink {
        // The sink is built even without subscribers, since a subscriber may arrive during the turn. The sink must not
        // hold the queued turn: the queued turn holds the turn's calls, and the calls hold the sink.
        let (hub, scope) = (Arc::clone(self), queued.scope.clone());
        EventSink::observer(move |event| {
            if let AgentEvent::TurnStarted { turn, .. } = event {
                hub.state.lock().turn = Some(*turn);
            }
            let is_answer = matches!(
                event,
                AgentEvent::TextDelta { .. }
                    | AgentEvent::ReasoningDelta { .. }
                    | AgentEvent::StepAnswered { .. }
            );
            if !(is_answer && scope.is_stopped()) {
                hub.send(|| SessionEventKind::Live(event.clone()));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> SessionEventKind {
        SessionEventKind::SessionIdle {
            stopped: false,
            detached: Vec::new(),
        }
    }

    #[test]
    fn observer_receives_the_number_of_missed_events() {
        let hub = EventHub::default();
        let mut observed = hub.observe();
        assert!(!hub.is_watched());
        for _ in 0..EVENTS_KEPT_MAX + 3 {
            hub.send(idle);
        }
        for _ in 0..EVENTS_KEPT_MAX {
            let event = observed.try_recv().unwrap();
            assert!(matches!(event.kind, SessionEventKind::SessionIdle { .. }));
        }
        assert!(observed.try_recv().is_err());
        hub.send(idle);
        let missed = observed.try_recv().unwrap();
        assert!(matches!(missed.kind, SessionEventKind::Missed { count: 3 }));
        observed.try_recv().unwrap();
        hub.close();
        assert_eq!(
            observed.try_recv().unwrap_err(),
            mpsc::error::TryRecvError::Disconnected
        );
    }
}
