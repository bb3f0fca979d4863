//! Price of a model, for displays. Nothing is decided by it.

use allstop_core::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens that a price is for.
const TOKENS_PRICED: f64 = 1_000_000.0;

/// Price of a model's tokens, as its provider lists it.
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
    /// Price of this usage, in words: `$0.25`. Discounts, such as those of cached input, are not known.
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
    fn price_of_a_usage_has_digits_that_tell_something() {
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
