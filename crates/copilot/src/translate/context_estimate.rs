//! Size of the conversation for the event `session.usage_info`.

use allstop_core::Usage;
use serde_json::{Value, json};

/// Usual number of bytes per token in English text and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Messages that a client has seen. A client that attaches later sees only the later messages.
#[derive(Debug, Default)]
pub(super) struct ContextEstimate {
    bytes: u64,
    messages: u64,
}

impl ContextEstimate {
    pub(super) fn add(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.messages += 1;
    }

    /// Returns the data of the event after a model call. The usage of the call is more exact than the estimate, but some
    /// providers report no usage.
    pub(super) fn info(&self, usage: Usage, context_window: u64) -> Value {
        let estimate = self.bytes.div_ceil(BYTES_PER_TOKEN);
        let current = estimate.max(usage.input_tokens + usage.output_tokens);
        json!({
            "currentTokens": current,
            "messagesLength": self.messages,
            "tokenLimit": context_window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_usage_wins_over_a_smaller_estimate() {
        let mut context = ContextEstimate::default();
        context.add("12345");
        let tokens = |usage| context.info(usage, 100)["currentTokens"].clone();
        assert_eq!(tokens(Usage::default()), 2);
        let usage = Usage {
            input_tokens: 40,
            output_tokens: 2,
            ..Usage::default()
        };
        assert_eq!(tokens(usage), 42);
    }
}
