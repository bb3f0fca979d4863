//! Usage and cost of a session, by model, computed from its records. A cost is an estimate from the listed prices: the
//! bill of the provider decides.

use std::fmt;
use std::sync::Arc;

use allstop_core::record::{SessionRecord, StartedCallKind};
use allstop_core::{SessionId, Usage};
use allstop_log::{Log, SessionError, visit_records};
use allstop_model::{TokenPrice, known_model};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::config::ModelConfig;

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// The amount, from the listed prices.
    #[serde(serialize_with = "with_few_digits")]
    pub amount: f64,
    /// Sign of the currency.
    #[schemars(with = "String")]
    pub currency: Arc<str>,
}

/// Serializes an amount without the rounding errors of its sum.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn with_few_digits<S: Serializer>(amount: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const SMALLEST: f64 = 1e8;
    serializer.serialize_f64((amount * SMALLEST).round() / SMALLEST)
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.amount < 0.1 { 4 } else { 2 };
        write!(f, "{}{:.digits$}", self.currency, self.amount)
    }
}

/// Sign of the currency of the listed prices.
const DOLLAR: &str = "$";

/// Prices of models: the configured price of the configured model, and the listed prices of common models.
#[derive(Debug, Clone, Default)]
pub struct ModelPrices {
    configured: ModelConfig,
    /// Name of the configured model in the log.
    opened: Option<Arc<str>>,
}

impl ModelPrices {
    /// The prices with this configuration.
    pub fn new(configured: &ModelConfig) -> Self {
        Self {
            configured: configured.clone(),
            opened: None,
        }
    }

    /// Also finds the configured price by this name of the opened model.
    #[must_use]
    pub fn opened_as(mut self, model: &str) -> Self {
        self.opened = Some(model.into());
        self
    }

    /// Price of a model's tokens at this server in US dollars; `None` if it is unknown.
    pub fn dollar_price(&self, model: &str, base_url: Option<&str>) -> Option<TokenPrice> {
        let (price, currency) = self.price(model, base_url)?;
        (*currency == *DOLLAR).then_some(price)
    }

    fn price(&self, model: &str, base_url: Option<&str>) -> Option<(TokenPrice, Arc<str>)> {
        // A name with a provider belongs to that provider, also if a client has chosen the model of the session.
        let base_url = base_url.filter(|_| !model.contains("::"));
        let own = &self.configured;
        let is_named = own
            .name
            .as_deref()
            .is_some_and(|name| is_same_model(name, model))
            || self.opened.as_deref() == Some(model);
        let is_configured = is_named && own.base_url.as_deref() == base_url;
        if let Some(price) = own.price.as_ref().filter(|_| is_configured) {
            return Some((price.token_price(), price.currency.as_str().into()));
        }
        Some((known_model(model, base_url)?.price?, DOLLAR.into()))
    }
}

/// Usage of one model in a session.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelUsage {
    /// The model.
    pub model: Arc<str>,
    /// Usage of all calls.
    pub usage: Usage,
    /// Cost of all calls. `None` if the price of a call is unknown.
    pub cost: Option<Cost>,
}

/// URL of a server that the log does not contain: the client chose it, or the URL has a secret. No price is known.
const UNKNOWN_SERVER: &str = "";

/// Usage and cost of the records of a session. Sub-agents use the model of the session.
#[derive(Debug, Clone, Default)]
pub struct SessionCost {
    prices: ModelPrices,
    /// Model of the last call, and the URL of its server.
    model: Option<Arc<str>>,
    base_url: Option<Arc<str>>,
    models: Vec<ModelUsage>,
}

impl SessionCost {
    /// Cost of no records yet, with these prices.
    pub fn new(prices: ModelPrices) -> Self {
        let base_url = prices.configured.base_url.as_deref().map(Arc::from);
        let model = prices.configured.name.as_deref().map(Arc::from);
        Self {
            prices,
            model,
            base_url,
            models: Vec::new(),
        }
    }

    /// Cost of a session in a log. The session may be open.
    ///
    /// # Errors
    /// If the session cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn of_session(
        log: &dyn Log,
        id: &SessionId,
        prices: ModelPrices,
    ) -> Result<Self, SessionError> {
        let mut cost = Self {
            model: None,
            base_url: Some(UNKNOWN_SERVER.into()),
            ..Self::new(prices)
        };
        visit_records(log, id, |record| cost.add(record)).await?;
        Ok(cost)
    }

    /// Adds the usage of the next record.
    pub fn add(&mut self, record: &SessionRecord) {
        match record {
            SessionRecord::SettingsChanged { settings, .. } => {
                self.model.clone_from(&settings.model);
                self.base_url = match settings.model {
                    Some(_) => settings.base_url.clone(),
                    None => Some(UNKNOWN_SERVER.into()),
                };
            }
            SessionRecord::CallStarted { call, .. } => {
                if let StartedCallKind::Model { .. } = call.kind {
                    self.model = Some(Arc::clone(&call.name));
                }
            }
            SessionRecord::CallFinished {
                usage: Some(usage), ..
            }
            | SessionRecord::BackgroundEnded {
                usage: Some(usage), ..
            }
            | SessionRecord::Compacted { usage, .. }
            | SessionRecord::Metered { usage, .. } => self.add_usage(*usage),
            _ => {}
        }
    }

    fn add_usage(&mut self, usage: Usage) {
        if usage.total_tokens() == 0 {
            return;
        }
        let model = self.model.clone().unwrap_or_else(|| "?".into());
        let price = self.prices.price(&model, self.base_url.as_deref());
        let cost = price.and_then(|(price, currency)| {
            Some(Cost {
                amount: price.cost(usage)?,
                currency,
            })
        });
        match self.models.iter_mut().find(|known| known.model == model) {
            Some(known) => {
                known.usage += usage;
                known.cost = sum(known.cost.take(), cost);
            }
            None => self.models.push(ModelUsage { model, usage, cost }),
        }
    }

    /// Usage of each model, in the order of their first calls.
    pub fn models(&self) -> &[ModelUsage] {
        &self.models
    }

    /// Usage of all models together.
    pub fn usage(&self) -> Usage {
        let usages = self.models.iter().map(|model| model.usage);
        usages.fold(Usage::default(), |sum, usage| sum + usage)
    }

    /// Cost of all calls. `None` if no call was made, if the price of a call is unknown, or if the prices have different
    /// currencies.
    pub fn total(&self) -> Option<Cost> {
        let mut costs = self.models.iter().map(|model| model.cost.clone());
        let first = costs.next()?;
        costs.fold(first, sum)
    }
}

/// True if a log calls the model of this name so. The log also contains the provider, `openai::gpt-4o`.
fn is_same_model(name: &str, in_log: &str) -> bool {
    let bare = in_log.split_once("::").map_or(in_log, |(_, bare)| bare);
    name == in_log || name == bare
}

fn sum(one: Option<Cost>, other: Option<Cost>) -> Option<Cost> {
    let (one, other) = (one?, other?);
    (one.currency == other.currency).then_some(Cost {
        amount: one.amount + other.amount,
        currency: one.currency,
    })
}

#[cfg(test)]
mod tests {
    use allstop_core::record::{CallOutcome, StartedCall};
    use allstop_core::{Timestamp, TurnNumber};

    use super::*;

    fn calls(model: &str, usage: Usage) -> [SessionRecord; 2] {
        let started = SessionRecord::CallStarted {
            turn: TurnNumber(1),
            call: StartedCall {
                id: "step_1".into(),
                name: model.into(),
                kind: StartedCallKind::Model { reserved_tokens: 0 },
            },
            at: Timestamp::from_unix_ms(0),
        };
        [started, finished("step_1", usage)]
    }

    fn finished(id: &str, usage: Usage) -> SessionRecord {
        SessionRecord::CallFinished {
            turn: TurnNumber(1),
            id: id.into(),
            outcome: CallOutcome::Succeeded,
            usage: Some(usage),
            finish: None,
            exit_code: None,
            result: None,
        }
    }

    fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage {
            input_tokens,
            output_tokens,
            ..Usage::default()
        }
    }

    fn cost_of(prices: &ModelPrices, records: &[SessionRecord]) -> SessionCost {
        let mut cost = SessionCost::new(prices.clone());
        for record in records {
            cost.add(record);
        }
        cost
    }

    #[test]
    fn calls_of_sub_agents_count_for_the_model_of_the_session() {
        let mut records = calls("gpt-5-mini", tokens(1_000_000, 0)).to_vec();
        records.push(finished("call_1", tokens(0, 1_000_000)));
        let cost = cost_of(&ModelPrices::default(), &records);
        assert_eq!(cost.models().len(), 1);
        assert_eq!(cost.total().unwrap().to_string(), "$2.25");
        let long = calls("gpt-5.5", tokens(300_000, 0));
        let cost = cost_of(&ModelPrices::default(), &long);
        assert_eq!(cost.total(), None, "long calls have another price");
    }

    #[test]
    fn cost_is_unknown_if_one_price_is_unknown() {
        let mut records = calls("gpt-4o", tokens(100_000, 10_000)).to_vec();
        let known = cost_of(&ModelPrices::default(), &records);
        assert_eq!(known.total().unwrap().to_string(), "$0.35");
        records.extend(calls("qwen3:8b", tokens(10, 10)));
        let mixed = cost_of(&ModelPrices::default(), &records);
        assert_eq!(mixed.total(), None);
        let by_model = mixed.models().iter().map(|model| model.cost.is_some());
        assert_eq!(by_model.collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn configured_price_comes_first() {
        let configured = ModelConfig {
            name: Some("gpt-4o".to_owned()),
            price: Some(crate::PriceConfig {
                input: 1.0,
                cached_input: None,
                cache_write: None,
                output: 1.0,
                currency: "€".to_owned(),
            }),
            ..ModelConfig::default()
        };
        let records = calls("gpt-4o", tokens(1_000, 1_000));
        let cost = cost_of(&ModelPrices::new(&configured), &records);
        assert_eq!(cost.total().unwrap().to_string(), "€0.0020");
    }
}
