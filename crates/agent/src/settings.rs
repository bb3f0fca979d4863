//! Settings of an agent: limits, deadlines, policies.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::turn::{Budget, LoopLimits, StopPolicy};
use allstop_model::{RequestSettings, RetryPolicy, ToolChoice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer_schema::AnswerSchema;

/// Settings of an agent.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// Maximum steps per turn; `None` means no limit.
    pub steps_max: Option<u32>,
    /// Maximum turns of a session; `None` means no limit.
    pub turns_max: Option<u32>,
    /// Budget, which other work may share.
    pub budget: Option<Arc<Budget>>,
    /// Maximum tokens of one answer. With a budget, also the number of tokens that a call reserves for its answer.
    pub output_tokens_max: Option<u64>,
    /// Sampling, reasoning and the choice of tools in the requests to the model.
    pub request: Arc<RequestSettings>,
    /// Format of the final answer of each turn; `None` for any text.
    pub answer: Option<AnswerSchema>,
    /// Time limits.
    pub deadlines: Deadlines,
    /// Policy for the retry of failed model calls.
    pub retry: RetryPolicy,
    /// Limits of the loop detector, which ends a run that repeats the same calls.
    pub loop_limits: LoopLimits,
    /// Part of a stopped turn that stays in the conversation.
    pub stop_policy: StopPolicy,
    /// Limits on the length of requests. `None` if requests always contain the whole conversation.
    pub context: Option<ContextLimits>,
    /// Handling of calls that repeat a call of an earlier turn, whose outcome is unknown.
    pub repeat_unknown: RepeatUnknown,
}

/// The settings for other questions than the prompts of the agent: a question outside the conversation, or the prompt of a
/// sub-agent.
pub(crate) fn without_tool_choice(settings: &Arc<RequestSettings>) -> Arc<RequestSettings> {
    let mut settings = Arc::clone(settings);
    if !settings.tool_choice.is_auto() {
        Arc::make_mut(&mut settings).tool_choice = ToolChoice::Auto;
    }
    settings
}

/// Limits on the length of requests. If a request is too long, older tool results are shortened in it; then a summary
/// replaces older turns. A request that the provider refuses as too long is shortened and repeated once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextLimits {
    /// Maximum estimated tokens of a request. `None` if the context window of the model is unknown; then only a refused
    /// request is shortened.
    pub tokens_max: Option<u64>,
    /// Maximum number of newest turns that a summary keeps unchanged.
    pub turns_kept: u32,
}

/// Handling of a call that repeats a call of an earlier turn, with the same tool and arguments. The earlier call has an
/// unknown outcome, for example after a crash, and its effect cannot be repeated safely.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepeatUnknown {
    /// A person is asked. If there is no person, the call is denied. An approval that was given in advance does not
    /// count.
    #[default]
    Ask,
    /// The permission rules alone decide.
    Allow,
    /// The call is denied.
    Deny,
}

/// Time limits. `None` means no limit, and costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Limit of all turns of a run together.
    pub run: Option<Duration>,
    /// Limit of one turn.
    pub turn: Option<Duration>,
    /// Limit of one step: its model call and its tool calls.
    pub step: Option<Duration>,
    /// Timeout until the provider's first token. If the timeout is exceeded, the model call fails, but the turn is not
    /// stopped.
    pub first_token: Option<Duration>,
    /// Timeout between two tokens of the provider. If the timeout is exceeded, the model call fails, but the turn is
    /// not stopped.
    pub between_tokens: Option<Duration>,
    /// Limit of a tool call whose tool sets no limit. If the limit is exceeded, the call ends and the turn continues.
    pub tool: Option<Duration>,
    /// Maximum time between two signs of activity (a piece of an answer, the end of a call). If this limit is exceeded,
    /// the turn ends.
    pub inactivity: Option<Duration>,
}
