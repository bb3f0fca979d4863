//! Received part of an answer, and its cost so far.

use allstop_core::{FinishReason, ToolCall, Usage};
use allstop_model::ModelEvent;

use crate::event::AgentEvent;

/// Checkpoint of a call before its answer begins.
const CONNECT: &str = "connect";

pub(super) struct PartialAnswer {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    /// Usage that the provider has reported, if any.
    pub(super) reported: Option<Usage>,
    /// Bytes of the answer, of any kind, for an estimate of the usage.
    pub(super) bytes: usize,
    /// Bytes of tool calls that have not arrived completely; included in `bytes`.
    half_call_bytes: usize,
    /// Bytes that arrived after a stop was accepted: charged, but not shown.
    pub(super) bytes_after_stop: usize,
    /// Reason why the model ended the answer.
    pub(super) finish: FinishReason,
    /// Checkpoint that a stop would report for the call.
    pub(super) checkpoint: &'static str,
}

impl PartialAnswer {
    pub(super) fn new() -> Self {
        Self {
            text: String::new(),
            calls: Vec::new(),
            reported: None,
            bytes: 0,
            half_call_bytes: 0,
            bytes_after_stop: 0,
            finish: FinishReason::Done,
            checkpoint: CONNECT,
        }
    }

    /// True if the provider has not begun to answer.
    pub(super) fn is_refused(&self) -> bool {
        self.checkpoint == CONNECT
    }

    /// Usage of a complete answer: the reported usage, or an estimate that is marked as an estimate.
    pub(super) fn usage(&self, input_tokens_estimated: impl FnOnce() -> u64) -> Usage {
        self.reported
            .unwrap_or_else(|| self.usage_when_cut(input_tokens_estimated))
    }

    /// Usage of an incomplete answer. Usage that was reported in the middle of the stream may be older than the
    /// received data. Therefore the larger of the reported and the estimated number of output tokens counts.
    pub(super) fn usage_when_cut(&self, input_tokens_estimated: impl FnOnce() -> u64) -> Usage {
        let reported = self.reported.unwrap_or_default();
        let input_tokens = match reported.input_tokens {
            0 => input_tokens_estimated(),
            reported => reported,
        };
        Usage {
            input_tokens,
            cached_input_tokens: reported.cached_input_tokens,
            cache_write_input_tokens: reported.cache_write_input_tokens,
            output_tokens: reported
                .output_tokens
                .max(Usage::estimate_tokens(self.bytes)),
            estimated: true,
        }
    }

    /// Adds received data. Returns its live event, if it has one.
    pub(super) fn take(&mut self, event: ModelEvent) -> Option<AgentEvent> {
        match event {
            ModelEvent::Text(text) => {
                self.bytes += text.len();
                self.text.push_str(&text);
                return Some(AgentEvent::TextDelta { text });
            }
            ModelEvent::Reasoning(text) => {
                self.bytes += text.len();
                return Some(AgentEvent::ReasoningDelta { text });
            }
            ModelEvent::ToolCallProgress { bytes } => {
                self.bytes += bytes;
                self.half_call_bytes += bytes;
            }
            ModelEvent::ToolCall(call) => {
                // Bytes counted while the call arrived are not counted again.
                let bytes = call.arguments.bytes();
                self.bytes += bytes.saturating_sub(self.half_call_bytes);
                self.half_call_bytes = self.half_call_bytes.saturating_sub(bytes);
                self.calls.push(call);
            }
            ModelEvent::Usage(usage) => self.reported = Some(usage),
            // The caller handles the end. No event follows the end.
            ModelEvent::End(_) => {}
        }
        None
    }
}
