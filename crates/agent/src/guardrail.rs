//! Guardrails: checks of the input and of the output of a turn. A receipt (the result of a stop) lists a guardrail that
//! runs during the stop.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        cx: &crate::hook::HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict>;
}
