//! Activity of a turn, which the inactivity limit checks, and the output of the turn's calls. Output that waits to be
//! joined with later output in one event is called held output.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::CallId;
use allstop_core::turn::PartialStep;
use allstop_tools::output::{without_cut_end, without_cut_start};
use allstop_tools::{BackgroundHost, CallJournal, CallObserver, CallProgress, Prompter};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::background::SessionBackground;
use crate::event::{AgentEvent, EventSink};
use crate::nested_calls::NestedCalls;
use crate::output_batch::{OutputBatch, OutputEvent};

/// Time of a turn's last sign of activity. Shared by the turn and its calls.
pub(crate) struct ActivityTimer {
    began: Instant,
    active_after_ms: AtomicU64,
    events: EventSink,
    /// Text of the running step. Events contain this text, and after a stop under the policy `keep` the model receives
    /// it. Events are sent while this lock is held, so they have the order of the output.
    partial: Mutex<PartialText>,
    /// Calls of the sub-agents that run in the turn's calls.
    nested: Arc<NestedCalls>,
    /// Background work of the session.
    background: Option<Arc<SessionBackground>>,
    /// Asks the questions of tools' servers.
    prompter: Arc<dyn Prompter>,
    /// Notifies [`Self::send_held_output`] when a call begins to hold output.
    held: Notify,
}

/// Bytes kept from the end of a call's output. [`ANSWER_BYTES_MAX`] limits the kept beginning of an answer. Each limit
/// keeps enough text for a reader to continue the work.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
struct PartialText {
    answer: String,
    outputs: HashMap<CallId, LiveOutput>,
}

#[derive(Default)]
struct LiveOutput {
    end: Vec<u8>,
    batch: OutputBatch,
}

impl ActivityTimer {
    pub(crate) fn new(
        events: EventSink,
        nested: Arc<NestedCalls>,
        background: Option<Arc<SessionBackground>>,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        Self {
            began: Instant::now(),
            active_after_ms: AtomicU64::new(0),
            events,
            partial: Mutex::default(),
            nested,
            background,
            prompter,
            held: Notify::new(),
        }
    }

    /// Clears the text at the start of a step, because the results of the previous step already contain its text.
    pub(crate) fn begin_step(&self) {
        *self.partial.lock() = PartialText::default();
    }

    /// Keeps the beginning of the answer of an interrupted step.
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
                .map(|(call, output)| {
                    let text = String::from_utf8_lossy(without_cut_end(&output.end));
                    (call.clone(), text.into())
                })
                .collect(),
        }
    }

    /// Sends the held output of each call as soon as that output is due.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn send_held_output(&self) -> Infallible {
        loop {
            let due = self.send_due(Instant::now());
            tokio::select! {
                () = self.held.notified() => {}
                () = until(due) => {}
            }
        }
    }

    /// Sends the output that is due. If a call still holds output, returns the time at which that output is due.
    fn send_due(&self, now: Instant) -> Option<Instant> {
        let mut partial = self.partial.lock();
        for (call_id, output) in &mut partial.outputs {
            if let Some(piece) = output.batch.take_due(now) {
                self.send(call_id, piece);
            }
        }
        let due = partial.outputs.values();
        due.filter_map(|output| output.batch.due_at()).min()
    }

    /// Sends the rest of a call's output after the call has ended.
    pub(crate) fn send_rest_of(&self, call_id: &CallId) {
        if let Some(output) = self.partial.lock().outputs.get_mut(call_id)
            && let Some(piece) = output.batch.take_all()
        {
            self.send(call_id, piece);
        }
    }

    /// Sends the rest of the output of all calls after the turn has ended.
    pub(crate) fn send_rest(&self) {
        for (call_id, output) in &mut self.partial.lock().outputs {
            if let Some(piece) = output.batch.take_all() {
                self.send(call_id, piece);
            }
        }
    }

    fn send(&self, call_id: &CallId, piece: OutputEvent) {
        let OutputEvent {
            text,
            base64,
            missed_bytes,
        } = piece;
        self.events.send(|| AgentEvent::ToolOutput {
            call_id: call_id.clone(),
            text,
            base64,
            missed_bytes,
        });
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
    fn output(&self, call_id: &CallId, output: &[u8]) {
        let mut partial = self.partial.lock();
        let call = partial.outputs.entry(call_id.clone()).or_default();
        keep_end(&mut call.end, output);
        let was_due = call.batch.due_at().is_some();
        if let Some(piece) = call.batch.push(output, Instant::now()) {
            self.send(call_id, piece);
        } else if !was_due {
            self.held.notify_one();
        }
    }

    fn progress(&self, call_id: &CallId, progress: &CallProgress) {
        let mut partial = self.partial.lock();
        let call = partial.outputs.entry(call_id.clone()).or_default();
        call.end = progress.to_string().into_bytes();
        self.events.send(|| AgentEvent::ToolProgress {
            call_id: call_id.clone(),
            progress: progress.clone(),
        });
    }

    fn heartbeat(&self) {
        self.record_activity();
    }

    fn background(&self) -> Option<Arc<dyn BackgroundHost>> {
        Some(Arc::clone(self.background.as_ref()?) as _)
    }

    fn prompter(&self) -> Option<Arc<dyn Prompter>> {
        Some(Arc::clone(&self.prompter))
    }

    fn journal(&self) -> Option<Arc<dyn CallJournal>> {
        Some(Arc::clone(&self.nested) as _)
    }
}

/// Waits until the time `at`, or forever if `at` is `None`.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Adds output, and drops the beginning if the output is too long.
fn keep_end(end: &mut Vec<u8>, output: &[u8]) {
    end.extend_from_slice(output);
    // Bytes are not dropped for each piece, because each drop moves the remaining bytes.
    if end.len() > 2 * OUTPUT_BYTES_MAX {
        *end = without_cut_start(&end[end.len() - OUTPUT_BYTES_MAX..]).to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_output_is_kept() {
        let mut output = Vec::new();
        for _ in 0..10_000 {
            keep_end(&mut output, "é1234567".as_bytes());
        }
        assert!(output.len() <= 2 * OUTPUT_BYTES_MAX, "{}", output.len());
        let text = String::from_utf8(output).unwrap();
        assert!(text.ends_with("é1234567"));
    }
}
