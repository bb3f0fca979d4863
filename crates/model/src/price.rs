//! Price of tokens, and the cost of a usage.

use allstop_core::Usage;

/// Number of tokens that a price refers to.
const TOKENS_PRICED: f64 = 1_000_000.0;

/// Price of a million tokens, in one currency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenPrice {
    /// Price of a million input tokens.
    pub input: f64,
    /// Price of a million input tokens from the cache of the provider. `None` if they have no separate price.
    pub cached_input: Option<f64>,
    /// Price of a million input tokens that the provider writes to its cache. `None` if they have no separate price.
    pub cache_write: Option<f64>,
    /// Price of a million output tokens.
    pub output: f64,
    /// Maximum input tokens of a call at this price. `None` if calls of any length have this price.
    pub call_tokens_max: Option<u64>,
}

impl TokenPrice {
    /// Cost of one call or of several calls together. `None` if the price of a call with so many tokens is not known.
    pub fn cost(&self, usage: Usage) -> Option<f64> {
        if self
            .call_tokens_max
            .is_some_and(|max| usage.input_tokens > max)
        {
            return None;
        }
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let rest = usage.input_tokens - cached;
        let written = usage.cache_write_input_tokens.min(rest);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a cost is shown with few digits"
        )]
        let of = |tokens: u64, price: f64| tokens as f64 / TOKENS_PRICED * price;
        Some(
            of(rest - written, self.input)
                + of(written, self.cache_write.unwrap_or(self.input))
                + of(cached, self.cached_input.unwrap_or(self.input))
                + of(usage.output_tokens, self.output),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_and_written_input_have_their_own_prices() {
        let price = TokenPrice {
            input: 2.0,
            cached_input: Some(0.5),
            cache_write: Some(2.5),
            output: 8.0,
            call_tokens_max: Some(3_000_000),
        };
        let usage = Usage {
            input_tokens: 3_000_000,
            cached_input_tokens: 2_000_000,
            cache_write_input_tokens: 400_000,
            output_tokens: 1_000_000,
            estimated: false,
        };
        let cost = price.cost(usage).unwrap();
        assert!((cost - 11.2).abs() < 1e-9, "{cost}");
        let longer = Usage {
            input_tokens: 3_000_001,
            ..usage
        };
        assert_eq!(price.cost(longer), None);
    }
}
