//! Functions that all protocols use to decode events.

use allstop_core::Usage;
use serde_json::Value;

use super::super::bounded_json::JsonError;

/// Reason why an event cannot be decoded.
#[derive(Debug)]
pub(in crate::provider) enum EventDecodeError {
    Json(JsonError),
    /// The provider's own error object.
    Provider(Value),
    /// The answer is longer than [`AnswerLimits::answer_bytes_max`](crate::AnswerLimits::answer_bytes_max).
    AnswerTooLong,
    /// The parsed arguments of the tool calls would take more memory than
    /// [`super::super::bounded_json::VALUE_BYTES_MAX`].
    ArgumentsTooLarge,
    /// The answer has more than [`crate::CALLS_MAX`] calls.
    TooManyCalls,
    /// The answer has neither text nor calls nor a finish reason.
    EmptyAnswer,
    /// The finish reason means that the answer contains tool calls, but the provider sent no call.
    NoCall,
}

/// Completeness of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum AnswerProgress {
    More,
    Complete,
}

/// Text at a JSON pointer; empty if the pointer leads to no text.
pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Input and output tokens; `None` unless the provider has counted both. `cached` is the number of input tokens from the
/// cache of the provider.
pub(super) fn usage_of(
    input_tokens: Option<u64>,
    cached: Option<u64>,
    output_tokens: Option<u64>,
) -> Option<Usage> {
    let input_tokens = input_tokens?;
    Some(Usage {
        input_tokens,
        cached_input_tokens: cached.unwrap_or_default().min(input_tokens),
        cache_write_input_tokens: 0,
        output_tokens: output_tokens?,
        estimated: false,
    })
}
