//! Reasons of a model for ending its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason of a model for ending its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is whole, or waits for its tools.
    #[default]
    Done,
    /// The answer was cut off at the limit of output tokens.
    Length,
    /// The answer was cut off by the provider's content filter.
    ContentFilter,
}

impl FinishReason {
    /// Whether the answer was cut off.
    pub fn is_cut(self) -> bool {
        self != Self::Done
    }

    /// The cut, in words that follow "the answer"; `None` for a whole answer.
    pub fn cut_words(self) -> Option<&'static str> {
        match self {
            Self::Done => None,
            Self::Length => Some("was cut off at the limit of output tokens"),
            Self::ContentFilter => Some("was cut off by the provider's content filter"),
        }
    }
}
