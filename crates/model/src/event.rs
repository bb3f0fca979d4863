//! Events of a model's answer.

use std::sync::Arc;

use allstop_core::{FinishReason, ToolCall, Usage};

/// Maximum number of calls in one answer. Models request a handful. An answer with more is broken or hostile, and each
/// call costs a scope and a record.
pub const CALLS_MAX: usize = 256;

/// An event of a model's stream. Tool calls arrive complete: if the stream is dropped, a partial call is dropped, too.
/// A call that the provider itself cut off, as [`ModelEvent::End`] reports, arrives with malformed arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(Arc<str>),
    /// A piece of the model's reasoning, which is displayed but not stored.
    Reasoning(Arc<str>),
    /// Progress of a tool call that is still being streamed, for display only.
    ToolCallProgress {
        /// Number of argument bytes.
        bytes: usize,
    },
    /// A complete tool call.
    ToolCall(ToolCall),
    /// Usage of the call so far, as counted by the provider; the last event counts.
    Usage(Usage),
    /// End of the answer; no event follows. A stream that ends without it was cut off, which is an error.
    End(FinishReason),
}
