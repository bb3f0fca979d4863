//! Activity of a turn, for the inactivity limit, and output of its calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::CallId;
use allstop_core::turn::PartialStep;
use allstop_tools::{CallObserver, CallProgress};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::event::{AgentEvent, EventSink};

/// Time of a turn's last sign of activity. Shared by the turn and its calls.
pub(crate) struct ActivityTimer {
    began: Instant,
    active_after_ms: AtomicU64,
    events: EventSink,
    /// Text of the running step, for the model after a stop.
    partial: Mutex<PartialText>,
}

/// Bytes that are kept of the end of a call's output, and of the beginning of an answer: what a reader needs to go on.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
struct PartialText {
    answer: String,
    outputs: HashMap<CallId, String>,
}

impl ActivityTimer {
    pub(crate) fn new(events: EventSink) -> Self {
        Self {
            began: Instant::now(),
            active_after_ms: AtomicU64::new(0),
            events,
            partial: Mutex::default(),
        }
    }

    /// A step begins: the text of the one before is in its results.
    pub(crate) fn begin_step(&self) {
        *self.partial.lock() = PartialText::default();
    }

    /// The step was interrupted after this beginning of its answer.
    pub(crate) fn keep_answer(&self, mut text: String) {
        text.truncate(text.floor_char_boundary(ANSWER_BYTES_MAX));
        self.partial.lock().answer = text;
    }

    /// Text of the running step.
    pub(crate) fn partial_step(&self) -> PartialStep {
        let partial = self.partial.lock();
        let answer = Some(partial.answer.trim_end()).filter(|answer| !answer.is_empty());
        let outputs = partial.outputs.iter();
        PartialStep {
            answer: answer.map(Into::into),
            outputs: outputs
                .map(|(call, output)| (call.clone(), output.as_str().into()))
                .collect(),
        }
    }

    pub(crate) fn record_activity(&self) {
        let after = self.began.elapsed().as_millis() as u64;
        self.active_after_ms.fetch_max(after, Ordering::Relaxed);
    }

    pub(crate) fn last_activity(&self) -> Instant {
        self.began + Duration::from_millis(self.active_after_ms.load(Ordering::Relaxed))
    }
}

impl CallObserver for ActivityTimer {
    fn output(&self, call_id: &CallId, text: &str) {
        keep_end(
            self.partial
                .lock()
                .outputs
                .entry(call_id.clone())
                .or_default(),
            text,
        );
        self.events.send(|| AgentEvent::ToolOutput {
            call_id: call_id.clone(),
            text: text.into(),
        });
    }

    fn progress(&self, call_id: &CallId, progress: &CallProgress) {
        let mut partial = self.partial.lock();
        partial
            .outputs
            .insert(call_id.clone(), progress.to_string());
        drop(partial);
        self.events.send(|| AgentEvent::ToolProgress {
            call_id: call_id.clone(),
            progress: progress.clone(),
        });
    }

    fn heartbeat(&self) {
        self.record_activity();
    }
}

/// Adds text, and drops the beginning of what is too long.
fn keep_end(output: &mut String, text: &str) {
    output.push_str(text);
    // Not at each piece: dropping moves the rest.
    if output.len() > 2 * OUTPUT_BYTES_MAX {
        let from = output.floor_char_boundary(output.len() - OUTPUT_BYTES_MAX);
        output.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_output_is_kept() {
        let mut output = String::new();
        for _ in 0..10_000 {
            keep_end(&mut output, "é1234567");
        }
        assert!(output.len() <= 2 * OUTPUT_BYTES_MAX, "{}", output.len());
        assert!(output.ends_with("é1234567"));
    }
}
