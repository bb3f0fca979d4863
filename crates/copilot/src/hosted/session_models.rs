//! Models of a session, with the limits that its client requests.

use std::sync::Arc;

use allstop_model::Model;
use allstop_runtime::{StartError, System};

use super::auto_model::AutoModel;
use super::credit_limit::{CreditLimitedModel, CreditMeter, ServerPrices};
use super::session_choice::SessionChoice;

/// State of the models of a session.
#[derive(Debug, Default)]
pub(super) struct SessionModels {
    /// The two models, if the server has an auto model for the session.
    pub(super) auto_model: Option<Arc<AutoModel>>,
    /// Cost of the calls since the session was opened.
    credits: CreditMeter,
}

impl SessionModels {
    /// Returns the state of the models, and the model for the agent; `None` for the configured model. `auto_name` is the auto
    /// model of the server, and `before` the state before another opening with other settings.
    ///
    /// # Errors
    /// Returns an error if the cost of the model is limited, and its price is unknown.
    pub(super) fn of(
        system: &System,
        auto_name: Option<&str>,
        choice: &mut SessionChoice,
        before: Option<&Self>,
    ) -> Result<(Self, Option<Arc<dyn Model>>), StartError> {
        let auto_model = AutoModel::of(system, auto_name, choice);
        let both = auto_model.clone().map(|models| models as Arc<dyn Model>);
        let mut model = both.or_else(|| choice.session_model(system));
        let credits = before.map_or_else(CreditMeter::default, |before| before.credits.clone());
        if let Some(credits_max) = choice.limits.max_ai_credits {
            let name = choice.model_name.as_deref();
            let prices = ServerPrices {
                prices: system.prices(),
                base_url: choice.providers.base_url(system, name),
            };
            let whole = model.unwrap_or_else(|| Arc::clone(system.model()));
            let limited = CreditLimitedModel::new(whole, prices, credits_max, credits.clone())?;
            model = Some(Arc::new(limited));
        }
        let models = Self {
            auto_model,
            credits,
        };
        Ok((models, model))
    }
}
