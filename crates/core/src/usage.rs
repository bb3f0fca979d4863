//! Token counts.

use std::ops::{Add, AddAssign};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens of one or more model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Number of the sent tokens that the provider has read from its cache, usually for a lower price. Absent if zero or
    /// unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_input_tokens: u64,
    /// Number of the sent tokens that the provider has written to its cache, for a higher price at some providers. Absent
    /// if zero or unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// True if a part of the usage was estimated here because the provider sent no count.
    pub estimated: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// Estimated bytes of text per token: the usual rule of thumb for English and code.
pub const TOKEN_BYTES_ESTIMATED: u64 = 4;

impl Usage {
    /// Input and output together.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Estimated tokens of a text of this many bytes, for providers that report no usage: four bytes per token,
    /// rounded up.
    pub fn estimate_tokens(bytes: usize) -> u64 {
        (bytes as u64).div_ceil(TOKEN_BYTES_ESTIMATED)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens = self
            .cached_input_tokens
            .saturating_add(other.cached_input_tokens);
        self.cache_write_input_tokens = self
            .cache_write_input_tokens
            .saturating_add(other.cache_write_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.estimated = self.estimated || other.estimated;
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
