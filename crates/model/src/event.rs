//! Events of a model's answer.

use std::sync::Arc;

use allstop_core::{FinishReason, ToolCall, Usage};

/// Maximum number of tool calls in one answer. Models request only a few calls, and an answer with more calls than this
/// is broken or hostile. The limit bounds the memory and the log, because each call needs entries there.
pub const CALLS_MAX: usize = 256;

/// An event of a model's stream. A tool call is complete when it arrives: if the stream is dropped, a partial call is
/// dropped too. There is one exception: if the provider itself cut off a call, the call arrives with malformed
/// arguments, and [`ModelEvent::End`] reports the cut.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(Arc<str>),
    /// A piece of the model's reasoning, which is displayed but not stored.
    Reasoning(Arc<str>),
    /// Progress of a tool call that is still arriving. This event is only for the display.
    ToolCallProgress {
        /// Number of argument bytes.
        bytes: usize,
    },
    /// A complete tool call.
    ToolCall(ToolCall),
    /// Usage of the call so far, as the provider has counted it. Each usage event replaces the previous one.
    Usage(Usage),
    /// End of the answer. No event follows. If a stream ends without this event, the stream was cut off, and this is an
    /// error.
    End(FinishReason),
}
