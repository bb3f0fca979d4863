//! Price of a model, for display only.

use allstop_core::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of tokens that a price refers to.
const TOKENS_PRICED: f64 = 1_000_000.0;

/// Price of a model's tokens, as listed by its provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Price of a million input tokens.
    pub input: f64,
    /// Price of a million output tokens.
    pub output: f64,
    /// Sign of the currency; `$` by default.
    #[serde(default = "dollar")]
    pub currency: String,
}

fn dollar() -> String {
    "$".to_owned()
}

impl PriceConfig {
    /// Formats the price of this usage, such as `$0.25`. Ignores discounts, such as the discount for cached input.
    pub fn of(&self, usage: Usage) -> String {
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        let of = |tokens: u64, price: f64| tokens as f64 / TOKENS_PRICED * price;
        let cost = of(usage.input_tokens, self.input) + of(usage.output_tokens, self.output);
        let digits = if cost < 0.1 { 4 } else { 2 };
        format!("{}{cost:.digits$}", self.currency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_of_a_usage_has_significant_digits() {
        let price = PriceConfig {
            input: 0.25,
            output: 2.0,
            currency: dollar(),
        };
        let of = |input_tokens, output_tokens| {
            price.of(Usage {
                input_tokens,
                output_tokens,
                estimated: false,
            })
        };
        assert_eq!(of(4_000, 1_000), "$0.0030");
        assert_eq!(of(4_000_000, 1_000_000), "$3.00");
    }
}
