//! Settings of an agent: limits, deadlines, policies.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::turn::{Budget, CallTexts, LoopLimits, StopPolicy};
use allstop_model::{RequestSettings, RetryPolicy, ToolChoice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer_schema::AnswerSchema;

/// Settings of an agent.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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
    /// Wording for the model about calls without a result; the default wording if `None`.
    pub call_texts: Option<Arc<CallTexts>>,
    /// Limits on the length of requests. `None` if requests always contain the whole conversation.
    pub context: Option<ContextLimits>,
    /// Handling of calls that repeat a call of an earlier turn, whose outcome is unknown.
    pub repeat_unknown: RepeatUnknown,
}

impl Settings {
    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Sets the maximum steps per turn.
    #[must_use]
    pub fn steps_max(mut self, steps_max: impl Into<Option<u32>>) -> Self {
        self.steps_max = steps_max.into();
        self
    }

    /// Sets the maximum turns of a session.
    #[must_use]
    pub fn turns_max(mut self, turns_max: impl Into<Option<u32>>) -> Self {
        self.turns_max = turns_max.into();
        self
    }

    /// Sets the budget, which other work may share.
    #[must_use]
    pub fn budget(mut self, budget: impl Into<Option<Arc<Budget>>>) -> Self {
        self.budget = budget.into();
        self
    }

    /// Sets the maximum tokens of one answer.
    #[must_use]
    pub fn output_tokens_max(mut self, output_tokens_max: impl Into<Option<u64>>) -> Self {
        self.output_tokens_max = output_tokens_max.into();
        self
    }

    /// Sets sampling, reasoning and the choice of tools.
    #[must_use]
    pub fn request(mut self, request: Arc<RequestSettings>) -> Self {
        self.request = request;
        self
    }

    /// Sets the format of the final answer of each turn.
    #[must_use]
    pub fn answer(mut self, answer: impl Into<Option<AnswerSchema>>) -> Self {
        self.answer = answer.into();
        self
    }

    /// Sets the time limits.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets the policy for the retry of failed model calls.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the limits of the loop detector.
    #[must_use]
    pub fn loop_limits(mut self, loop_limits: LoopLimits) -> Self {
        self.loop_limits = loop_limits;
        self
    }

    /// Sets the part of a stopped turn that stays in the conversation.
    #[must_use]
    pub fn stop_policy(mut self, stop_policy: StopPolicy) -> Self {
        self.stop_policy = stop_policy;
        self
    }

    /// Sets the limits on the length of requests.
    #[must_use]
    pub fn context(mut self, context: impl Into<Option<ContextLimits>>) -> Self {
        self.context = context.into();
        self
    }

    /// Sets the handling of calls that repeat a call of an earlier turn, whose outcome is unknown.
    #[must_use]
    pub fn repeat_unknown(mut self, repeat_unknown: RepeatUnknown) -> Self {
        self.repeat_unknown = repeat_unknown;
        self
    }
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
#[non_exhaustive]
pub struct ContextLimits {
    /// Maximum estimated tokens of a request. `None` if the context window of the model is unknown; then only a refused
    /// request is shortened.
    pub tokens_max: Option<u64>,
    /// Maximum number of newest turns that a summary keeps unchanged.
    pub turns_kept: u32,
}

impl ContextLimits {
    /// Creates limits for a model with an unknown context window. A summary keeps at most this number of newest turns
    /// unchanged.
    pub fn new(turns_kept: u32) -> Self {
        Self {
            tokens_max: None,
            turns_kept,
        }
    }

    /// Sets the maximum estimated tokens of a request.
    #[must_use]
    pub fn tokens_max(mut self, tokens_max: impl Into<Option<u64>>) -> Self {
        self.tokens_max = tokens_max.into();
        self
    }
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
#[non_exhaustive]
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

impl Deadlines {
    /// Sets the limit of all turns of a run together.
    #[must_use]
    pub fn run(mut self, run: impl Into<Option<Duration>>) -> Self {
        self.run = run.into();
        self
    }

    /// Sets the limit of one turn.
    #[must_use]
    pub fn turn(mut self, turn: impl Into<Option<Duration>>) -> Self {
        self.turn = turn.into();
        self
    }

    /// Sets the limit of one step.
    #[must_use]
    pub fn step(mut self, step: impl Into<Option<Duration>>) -> Self {
        self.step = step.into();
        self
    }

    /// Sets the timeout until the provider's first token.
    #[must_use]
    pub fn first_token(mut self, first_token: impl Into<Option<Duration>>) -> Self {
        self.first_token = first_token.into();
        self
    }

    /// Sets the timeout between two tokens of the provider.
    #[must_use]
    pub fn between_tokens(mut self, between_tokens: impl Into<Option<Duration>>) -> Self {
        self.between_tokens = between_tokens.into();
        self
    }

    /// Sets the limit of a tool call whose tool sets no limit.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<Option<Duration>>) -> Self {
        self.tool = tool.into();
        self
    }

    /// Sets the maximum time between two signs of activity.
    #[must_use]
    pub fn inactivity(mut self, inactivity: impl Into<Option<Duration>>) -> Self {
        self.inactivity = inactivity.into();
        self
    }
}
