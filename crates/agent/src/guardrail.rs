//! Guardrails: what may go in, and what may come out.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

/// Where a guardrail looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user's message, before the first model call.
    Input,
    /// The final answer, before the commit.
    Output,
}

/// What a guardrail says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardrailVerdict {
    /// Go on.
    Pass,
    /// The turn ends with `guardrail`, and leaves nothing in the conversation.
    Refuse {
        /// Why, for people.
        reason: String,
    },
}

/// Looks at what goes in or comes out. It fails closed: one that panics or is dropped has refused.
pub trait Guardrail: Send + Sync + fmt::Debug {
    /// For receipts.
    fn name(&self) -> &Arc<str>;

    /// Whether it looks at this stage.
    fn looks_at(&self, stage: Stage) -> bool;

    /// Looks.
    ///
    /// # Cancel safety
    /// The future is dropped as soon as a stop covers the turn.
    fn check(
        &self,
        cx: &crate::hook::HookCx,
        stage: Stage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict>;
}
