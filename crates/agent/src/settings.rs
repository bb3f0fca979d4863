//! How an agent runs: limits, deadlines, policies.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::turn::{Budget, LoopLimits, StopPolicy};
use allstop_model::RetryPolicy;

/// How an agent runs.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// Steps of one turn; `None` is no limit.
    pub steps_max: Option<u32>,
    /// Turns of a session; `None` is no limit.
    pub turns_max: Option<u32>,
    /// What may be spent, shared with whatever else spends from it.
    pub budget: Option<Arc<Budget>>,
    /// At most so many tokens of one answer. With a budget it is also what a call reserves for its answer.
    pub output_tokens_max: Option<u64>,
    /// All limits of time.
    pub deadlines: Deadlines,
    /// When a failed model call is repeated.
    pub retry: RetryPolicy,
    /// When the same calls again and again end a run.
    pub loop_limits: LoopLimits,
    /// What a stopped turn leaves.
    pub stop_policy: StopPolicy,
}

/// All limits of time. `None` is no limit, and costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Of all turns of a run together.
    pub run: Option<Duration>,
    /// Of one turn.
    pub turn: Option<Duration>,
    /// Of one step: its model call and its tool calls.
    pub step: Option<Duration>,
    /// Until a provider's first token: its own timeout, not a deadline.
    pub first_token: Option<Duration>,
    /// Between a provider's tokens: its own timeout, not a deadline.
    pub between_tokens: Option<Duration>,
    /// Of a tool call whose tool says nothing else. The call ends, and the turn goes on.
    pub tool: Option<Duration>,
    /// Between two signs of life of a turn: a piece of a model's answer, or the end of a call. It ends the turn.
    pub inactivity: Option<Duration>,
}
