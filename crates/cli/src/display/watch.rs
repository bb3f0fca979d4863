//! From the live events of a run to whoever shows them.

use allstop_agent::AgentEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Shows the events of a run.
pub(crate) trait Watcher {
    /// The next event.
    fn event(&mut self, event: &AgentEvent);
    /// So many events were missed before the next one.
    fn missed(&mut self, count: u64);
}

/// Hands every event on until `done` is there and what was sent before it has been handed on too, or until nobody can
/// send any more.
///
/// # Cancel safety
/// Dropping it loses what was not handed on yet, and nothing else.
pub(crate) async fn watch<T>(
    events: &mut Receiver<AgentEvent>,
    watcher: &mut (dyn Watcher + Send),
    done: impl Future<Output = T>,
) -> T {
    tokio::pin!(done);
    loop {
        tokio::select! {
            // Events first: else the last ones would wait for the drain below, behind what the caller prints.
            biased;
            event = events.recv() => match event {
                Ok(event) => watcher.event(&event),
                Err(RecvError::Lagged(count)) => watcher.missed(count),
                Err(RecvError::Closed) => return done.await,
            },
            output = &mut done => {
                drain(events, watcher);
                return output;
            }
        }
    }
}

fn drain(events: &mut Receiver<AgentEvent>, watcher: &mut (dyn Watcher + Send)) {
    loop {
        match events.try_recv() {
            Ok(event) => watcher.event(&event),
            Err(TryRecvError::Lagged(count)) => watcher.missed(count),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}
