//! What arrives from a model.

use std::sync::Arc;

use allstop_core::{FinishReason, ToolCall, Usage};

/// The most calls that one answer may ask for. Models ask for a handful; an answer with more is broken or hostile, and
/// each call costs a scope and a record.
pub const CALLS_MAX: usize = 256;

/// One event of a model's stream. Tool calls arrive whole: of a stream that is dropped a half-streamed call is dropped
/// too. A call that the provider itself cut off, as [`ModelEvent::End`] then says, arrives with malformed arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(Arc<str>),
    /// A piece of the model's reasoning, which is shown and never kept.
    Reasoning(Arc<str>),
    /// Bytes of a tool call that is still being streamed: shows progress, carries nothing.
    ToolCallProgress {
        /// How many bytes of arguments.
        bytes: usize,
    },
    /// A complete tool call.
    ToolCall(ToolCall),
    /// What the provider says the call cost so far; the last one counts.
    Usage(Usage),
    /// The end; nothing follows. A stream that ends without it was cut, which is an error.
    End(FinishReason),
}
