//! Guardrails: checks of the input and of the output of a turn. A receipt (the result of a stop) lists a guardrail that
//! runs during the stop.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::HookCx;

/// Text that a guardrail checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardrailStage {
    /// The user's message, before the first model call.
    Input,
    /// The final answer, before the commit.
    Output,
}

/// Verdict of a guardrail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardrailVerdict {
    /// The turn continues.
    Pass,
    /// The turn ends with the stop reason `guardrail` and leaves nothing in the conversation.
    Refuse {
        /// Reason of the refusal, for people.
        reason: String,
    },
}

/// A check of the input or the output of a turn. A guardrail fails closed: a panic counts as a refusal.
pub trait Guardrail: Send + Sync + fmt::Debug {
    /// Name of the guardrail in receipts.
    fn name(&self) -> &Arc<str>;

    /// True if the guardrail checks this stage.
    fn wants(&self, stage: GuardrailStage) -> bool;

    /// Checks the text of a stage.
    ///
    /// # Cancel safety
    /// The future is dropped as soon as a stop covers the turn.
    fn check(
        &self,
        cx: &HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict>;
}

impl<G: Guardrail + ?Sized> Guardrail for Arc<G> {
    fn name(&self) -> &Arc<str> {
        (**self).name()
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        (**self).wants(stage)
    }

    fn check(
        &self,
        cx: &HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        (**self).check(cx, stage, text)
    }
}

/// A guardrail that is a function; see [`guardrail`].
pub struct FnGuardrail {
    name: Arc<str>,
    stage: GuardrailStage,
    check: Box<dyn Fn(HookCx, Arc<str>) -> BoxFuture<'static, GuardrailVerdict> + Send + Sync>,
}

/// Creates a guardrail from a function, which checks the text of one stage.
///
/// ```
/// use std::sync::Arc;
///
/// use allstop_agent::{GuardrailStage, GuardrailVerdict, guardrail};
///
/// let polite = guardrail("polite", GuardrailStage::Output, async |_cx, text: Arc<str>| {
///     if text.contains("idiot") {
///         return GuardrailVerdict::Refuse { reason: "an insult".to_owned() };
///     }
///     GuardrailVerdict::Pass
/// });
/// # let _ = polite;
/// ```
pub fn guardrail<F, R>(name: impl Into<Arc<str>>, stage: GuardrailStage, check: F) -> FnGuardrail
where
    F: Fn(HookCx, Arc<str>) -> R + Send + Sync + 'static,
    R: Future<Output = GuardrailVerdict> + Send + 'static,
{
    FnGuardrail {
        name: name.into(),
        stage,
        check: Box::new(move |cx, text| Box::pin(check(cx, text))),
    }
}

impl Guardrail for FnGuardrail {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        stage == self.stage
    }

    fn check(
        &self,
        cx: &HookCx,
        _stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        (self.check)(cx.clone(), text)
    }
}

impl fmt::Debug for FnGuardrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FnGuardrail").field(&self.name).finish()
    }
}
