//! Reasons why a model ended its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason why a model ended its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete, or waits for tool results.
    #[default]
    Done,
    /// The answer was cut off at the limit of output tokens.
    Length,
    /// The answer was cut off by the provider's content filter.
    ContentFilter,
}

impl FinishReason {
    /// True if the answer was cut off.
    pub fn is_cut(self) -> bool {
        self != Self::Done
    }

    /// Phrase that follows "the answer" in a sentence. `None` if the answer is complete.
    pub fn cut_words(self) -> Option<&'static str> {
        match self {
            Self::Done => None,
            Self::Length => Some("was cut off at the limit of output tokens"),
            Self::ContentFilter => Some("was cut off by the provider's content filter"),
        }
    }
}
