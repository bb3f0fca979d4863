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

#[cfg(test)]
mod tests {
    use allstop_agent::EventSink;

    use super::*;

    #[derive(Default)]
    struct Seen {
        steps: Vec<u32>,
        missed: u64,
    }

    impl Watcher for Seen {
        fn event(&mut self, event: &AgentEvent) {
            if let AgentEvent::StepStarted { step, .. } = event {
                self.steps.push(*step);
            }
        }

        fn missed(&mut self, count: u64) {
            self.missed += count;
        }
    }

    fn send(sink: &EventSink, step: u32) {
        let model = "m".into();
        sink.send(|| AgentEvent::StepStarted { step, model });
    }

    #[tokio::test]
    async fn what_was_sent_before_the_end_is_seen() {
        let (sink, mut events) = EventSink::channel();
        let mut seen = Seen::default();
        let run = async {
            send(&sink, 1);
            tokio::task::yield_now().await;
            send(&sink, 2);
            7
        };
        assert_eq!(watch(&mut events, &mut seen, run).await, 7);
        assert_eq!((seen.steps, seen.missed), (vec![1, 2], 0));
    }

    #[tokio::test]
    async fn a_watcher_that_lags_is_told_how_much() {
        let (sink, mut events) = EventSink::channel();
        let mut seen = Seen::default();
        let run = async {
            (1..=10_000).for_each(|step| send(&sink, step));
        };
        watch(&mut events, &mut seen, run).await;
        assert_eq!(seen.steps.len() as u64 + seen.missed, 10_000);
        assert_eq!(seen.steps.last(), Some(&10_000));
    }

    #[tokio::test]
    async fn a_sink_that_is_gone_ends_nothing_before_its_time() {
        let (sink, mut events) = EventSink::channel();
        drop(sink);
        let run = async {
            tokio::task::yield_now().await;
            "done"
        };
        assert_eq!(watch(&mut events, &mut Seen::default(), run).await, "done");
    }
}
