//! Limit of a session's cost in AI credits, the unit in which GitHub bills Copilot.

use std::sync::Arc;

use allstop_core::{Message, Usage};
use allstop_model::TokenPrice;
use allstop_model::{Model, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
use allstop_runtime::{ModelPrices, StartError, StartErrorKind};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// AI credits per US dollar: GitHub bills 0.01 dollars for an AI credit.
const CREDITS_PER_DOLLAR: f64 = 100.0;

/// Limits that a client requests. A misspelt limit is refused, because the session would have no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SessionLimits {
    #[serde(default, deserialize_with = "positive")]
    pub max_ai_credits: Option<f64>,
}

fn positive<'de, D>(deserializer: D) -> Result<Option<f64>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let credits = Option::<f64>::deserialize(deserializer)?;
    let reason = match credits {
        Some(credits) if credits < 0.0 => "`maxAiCredits` is negative: use a positive number",
        Some(0.0) => {
            "`maxAiCredits` is 0, which refuses every call: use a positive number, or omit the limit"
        }
        _ => return Ok(credits),
    };
    Err(serde::de::Error::custom(reason))
}

/// Cost of the counted calls in US dollars. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct CreditMeter(Arc<Mutex<f64>>);

impl CreditMeter {
    fn credits(&self) -> f64 {
        *self.0.lock() * CREDITS_PER_DOLLAR
    }

    fn add(&self, dollars: f64) {
        *self.0.lock() += dollars;
    }
}

/// Prices of the models at the server of a session.
#[derive(Debug, Clone)]
pub(super) struct ServerPrices {
    pub(super) prices: ModelPrices,
    pub(super) base_url: Option<String>,
}

impl ServerPrices {
    fn of(&self, model: &str) -> Option<TokenPrice> {
        let base_url = self.base_url.as_deref();
        self.prices.dollar_price(model, base_url)
    }
}

/// A model that refuses calls after the session has used its AI credits, and informs the model of the remaining credits. One
/// call can exceed the limit, because its cost is known at its end.
#[derive(Debug)]
pub(super) struct CreditLimitedModel {
    model: Arc<dyn Model>,
    prices: ServerPrices,
    credits_max: f64,
    meter: CreditMeter,
}

impl CreditLimitedModel {
    /// Limits a model.
    ///
    /// # Errors
    /// Returns an error if the price of the model is unknown, because its calls could not be counted.
    pub(super) fn new(
        model: Arc<dyn Model>,
        prices: ServerPrices,
        credits_max: f64,
        meter: CreditMeter,
    ) -> Result<Self, StartError> {
        let limited = Self {
            model,
            prices,
            credits_max,
            meter,
        };
        match limited.price() {
            Ok(_) => Ok(limited),
            Err(error) => Err(StartError {
                kind: StartErrorKind::Config,
                message: error.message,
                hint: error.hint,
            }),
        }
    }

    fn price(&self) -> Result<TokenPrice, ModelError> {
        let name = self.model.name();
        self.prices.of(name).ok_or_else(|| {
            let message = format!(
                "`sessionLimits` cannot be counted: the price of {name} in dollars is unknown"
            );
            ModelError::new(ModelErrorKind::Invalid, message)
                .with_hint("set `price` of the model in the configuration, or leave the limit out")
        })
    }

    /// Remaining credits.
    ///
    /// # Errors
    /// Returns an error if no credits remain.
    fn remaining(&self) -> Result<f64, ModelError> {
        let remaining = self.credits_max - self.meter.credits();
        if remaining > 0.0 {
            return Ok(remaining);
        }
        let message = format!(
            "the session has used its {} AI credits (`sessionLimits`)",
            self.credits_max
        );
        Err(ModelError::new(ModelErrorKind::Unauthorized, message)
            .with_hint("raise the limit with `session.options.update`"))
    }
}

/// Adds a message with the remaining credits to a request that begins a turn. Within a turn, the conversation ends with results
/// of tools, and the model keeps its knowledge.
fn add_status(request: &mut ModelRequest, remaining: f64) {
    const DIGITS: f64 = 100.0;
    let is_of_user = |message: &Arc<Message>| matches!(**message, Message::User { .. });
    if !request.messages.last().is_some_and(is_of_user) {
        return;
    }
    let remaining = (remaining * DIGITS).floor() / DIGITS;
    let status = format!(
        "<session_limits_status>\nRemaining session limits: {remaining} AI credits. A later status replaces this one. Be \
         frugal; avoid optional exploration and unnecessary tool calls.\n</session_limits_status>"
    );
    request.messages.push(Arc::new(Message::user(status)));
}

/// A call whose cost is counted when it is dropped, also after a stop.
struct CountedCall {
    meter: CreditMeter,
    price: TokenPrice,
    /// Usage as the provider has reported it; `None` before the report.
    reported: Option<Usage>,
    input_bytes: usize,
    output_bytes: usize,
    /// True if the provider has refused the request, which costs nothing.
    is_refused: bool,
}

impl CountedCall {
    fn note(&mut self, event: &Result<ModelEvent, ModelError>) {
        match event {
            Ok(ModelEvent::Usage(usage)) => self.reported = Some(*usage),
            Ok(ModelEvent::Text(text) | ModelEvent::Reasoning(text)) => {
                self.output_bytes += text.len();
            }
            _ => {}
        }
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        if self.is_refused {
            return;
        }
        let usage = self.reported.unwrap_or_else(|| Usage {
            input_tokens: Usage::estimate_tokens(self.input_bytes),
            output_tokens: Usage::estimate_tokens(self.output_bytes),
            estimated: true,
            ..Usage::default()
        });
        // Calls of any length count at the listed price.
        let price = TokenPrice {
            call_tokens_max: None,
            ..self.price
        };
        self.meter.add(price.cost(usage).unwrap_or_default());
    }
}

impl Model for CreditLimitedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        self.model.check(request)
    }

    fn stream(&self, mut request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let price = self.price()?;
            add_status(&mut request, self.remaining()?);
            let system = request.system.as_ref().map_or(0, |system| system.len());
            let messages = request.messages.iter().map(|message| message.bytes());
            let mut call = CountedCall {
                meter: self.meter.clone(),
                price,
                reported: None,
                input_bytes: system + messages.sum::<usize>(),
                output_bytes: 0,
                is_refused: false,
            };
            let stream = self.model.stream(request).await;
            call.is_refused = stream.is_err();
            let events = stream?.events.inspect(move |event| call.note(event));
            Ok(ModelStream::new(events))
        })
    }
}
