//! Price of a model, for the display of costs and for limits of clients.

use allstop_model::TokenPrice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Price of a model's tokens, as listed by its provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PriceConfig {
    /// Price of a million input tokens.
    pub input: f64,
    /// Price of a million input tokens that the provider reads from its cache; the price of other input by default.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// Price of a million input tokens that the provider writes to its cache; the price of other input by default.
    #[serde(default)]
    pub cache_write: Option<f64>,
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
    /// The prices, without their currency.
    pub(crate) fn token_price(&self) -> TokenPrice {
        TokenPrice {
            input: self.input,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            output: self.output,
            call_tokens_max: None,
        }
    }
}
