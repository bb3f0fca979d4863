//! Events of a run for the program that started it.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::CallId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::event::{AgentEvent, EventSink};

/// Maximum number of events that wait for the program. A long answer has about this many deltas.
const EVENTS_WAITING_MAX: usize = 4096;

/// Events of a run, in order. Each event is returned once, also if several values read the run. If the program reads too
/// slowly, the oldest events are dropped and counted.
#[derive(Debug, Clone)]
pub struct RunEvents(Arc<RunEventQueue>);

#[derive(Debug, Default)]
struct RunEventQueue {
    state: Mutex<RunQueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct RunQueueState {
    events: VecDeque<AgentEvent>,
    missed: u64,
    has_ended: bool,
}

/// Ends the events when the run drops this value. The sink cannot do so: the calls of the run hold it, and everything that
/// can stop one of these calls holds them.
#[derive(Debug)]
pub(crate) struct EventsEnd(Arc<RunEventQueue>);

impl RunEvents {
    /// Creates a sink, the events that arrive there, and their end.
    pub(crate) fn channel() -> (EventSink, Self, EventsEnd) {
        let queue = Arc::new(RunEventQueue::default());
        let (writer, end) = (Arc::clone(&queue), EventsEnd(Arc::clone(&queue)));
        let sink = EventSink::observer(move |event| writer.push(event.clone()));
        (sink, Self(queue), end)
    }

    /// The events of a run without a sink for them: none.
    pub(crate) fn none() -> Self {
        Self::channel().1
    }

    /// Waits for the next event. `None` after the end of the run.
    ///
    /// # Cancel safety
    /// Cancel safe: a future that is dropped takes no event.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut state = self.0.state.lock();
                let event = state.events.pop_front();
                if event.is_some() || state.has_ended {
                    return event;
                }
            }
            changed.await;
        }
    }

    /// Skips to the start of the next tool call, and returns the call. `None` after the end of the run.
    ///
    /// # Cancel safety
    /// Events before the dropped future are skipped.
    pub async fn next_call(&mut self) -> Option<CallId> {
        loop {
            if let Some(call) = self.next().await?.started_call() {
                return Some(call.clone());
            }
        }
    }

    /// Number of events that were dropped so far, because the program reads too slowly.
    pub fn missed(&self) -> u64 {
        self.0.state.lock().missed
    }
}

impl RunEventQueue {
    fn push(&self, event: AgentEvent) {
        {
            let mut state = self.state.lock();
            if state.events.len() >= EVENTS_WAITING_MAX {
                state.events.pop_front();
                state.missed += 1;
            }
            state.events.push_back(event);
        }
        self.changed.notify_one();
    }
}

impl Drop for EventsEnd {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.changed.notify_waiters();
        self.0.changed.notify_one();
    }
}
