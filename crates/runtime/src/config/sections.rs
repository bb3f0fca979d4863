//! The sections of the configuration that are values.

use std::path::PathBuf;

use allstop_agent::{Deadlines, Settings};
use allstop_core::turn::{Budget, LoopLimits, StopPolicy};
use allstop_model::RetryPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, PermissionRule};
use allstop_core::WrittenDuration;

/// Steps of one turn where nobody says otherwise: more than an honest task takes, and few enough that a model that
/// wanders costs minutes, not hours.
pub const MAX_STEPS_DEFAULT: u32 = 50;

/// The model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Its name: `openai::gpt-5-mini`, `claude-…`, with `base_url` the server's own name for it, or `script:FILE`.
    pub name: Option<String>,
    /// The URL of an OpenAI-compatible server.
    pub base_url: Option<String>,
    /// The environment variable that holds the key. Without it the provider's usual one is taken, and none for
    /// `base_url`.
    pub api_key_env: Option<String>,
    /// At most so many tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// How long making a connection may take.
    pub connect_timeout: Option<WrittenDuration>,
    /// How long the provider may take to its first token.
    pub first_token_timeout: Option<WrittenDuration>,
    /// How long the provider may be silent between tokens.
    pub between_tokens_timeout: Option<WrittenDuration>,
    /// How often a model call that failed for the moment is repeated; 2 if not given.
    pub retries: Option<u32>,
}

/// Commands that a model runs, with the tool `shell`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShellSection {
    /// Variables of your environment that commands see although they look like secrets: names, or beginnings of names
    /// with `*` at their end.
    pub env: Vec<String>,
}

/// Limits of steps, turns and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Steps of one turn.
    pub max_steps: u32,
    /// Turns of a session.
    pub max_turns: Option<u32>,
    /// Tokens that one run may use, in and out together.
    pub max_budget_tokens: Option<u64>,
    /// When the same calls again and again end a run.
    pub loops: LoopsConfig,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_steps: MAX_STEPS_DEFAULT,
            max_turns: None,
            max_budget_tokens: None,
            loops: LoopsConfig::default(),
        }
    }
}

/// When the same calls again and again end a run. 0 switches a rule off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoopsConfig {
    /// The same call, name and arguments, so many times in a row.
    pub repeats: u32,
    /// Two calls in turn, so many times each.
    pub ping_pongs: u32,
    /// Calls of one tool, whatever the arguments.
    pub calls_per_tool: u32,
}

impl Default for LoopsConfig {
    fn default() -> Self {
        let limits = LoopLimits::default();
        Self {
            repeats: limits.repeats_max.unwrap_or(0),
            ping_pongs: limits.ping_pongs_max.unwrap_or(0),
            calls_per_tool: limits.calls_per_tool_max.unwrap_or(0),
        }
    }
}

impl From<LoopsConfig> for LoopLimits {
    fn from(loops: LoopsConfig) -> Self {
        let limit = |max: u32| (max > 0).then_some(max);
        Self {
            repeats_max: limit(loops.repeats),
            ping_pongs_max: limit(loops.ping_pongs),
            calls_per_tool_max: limit(loops.calls_per_tool),
        }
    }
}

/// Limits of time. What is not given is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadlinesConfig {
    /// Of all turns of a run together.
    pub run: Option<WrittenDuration>,
    /// Of one turn.
    pub turn: Option<WrittenDuration>,
    /// Of one step: its model call and its tool calls.
    pub step: Option<WrittenDuration>,
    /// Of one tool call; the turn goes on.
    pub tool: Option<WrittenDuration>,
    /// Between two signs of life of a turn.
    pub inactivity: Option<WrittenDuration>,
    /// How long a stop asks before it uses force; 2s if not given.
    pub grace: Option<WrittenDuration>,
}

/// What a stopped turn leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStop {
    /// The conversation as it was before the turn.
    Rollback,
    /// The user's message, the completed steps and a marker of the stop.
    Keep,
}

impl From<OnStop> for StopPolicy {
    fn from(on_stop: OnStop) -> Self {
        match on_stop {
            OnStop::Rollback => Self::Rollback,
            OnStop::Keep => Self::Keep,
        }
    }
}

/// Which tool calls run, and which a person is asked about. A rule is a tool, `read`, or the beginning of a command,
/// `shell:git status`. Denying wins over asking, and asking over allowing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PermissionsConfig {
    /// Calls that run.
    pub allow: Vec<PermissionRule>,
    /// Calls that are asked about, whatever allows them.
    pub ask: Vec<PermissionRule>,
    /// Calls that never run.
    pub deny: Vec<PermissionRule>,
}

/// What the file tools may touch beside the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceConfig {
    /// Folders that may be read.
    pub read: Vec<PathBuf>,
    /// Folders that may be read and written.
    pub write: Vec<PathBuf>,
}

/// Where sessions are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// The file of the store.
    pub path: Option<PathBuf>,
}

impl Config {
    /// How an agent runs under this configuration. Each call gives a budget of its own.
    pub(crate) fn settings(&self) -> Settings {
        let limit = |duration: Option<WrittenDuration>| duration.map(Into::into);
        let mut retry = RetryPolicy::default();
        if let Some(retries) = self.model.retries {
            retry.attempts_max = retries.saturating_add(1);
        }
        Settings {
            system: self.system_prompt.as_deref().map(Into::into),
            steps_max: Some(self.limits.max_steps),
            turns_max: self.limits.max_turns,
            budget: self.limits.max_budget_tokens.map(Budget::of_tokens),
            output_tokens_max: self.model.max_output_tokens,
            deadlines: Deadlines {
                run: limit(self.deadlines.run),
                turn: limit(self.deadlines.turn),
                step: limit(self.deadlines.step),
                first_token: limit(self.model.first_token_timeout),
                between_tokens: limit(self.model.between_tokens_timeout),
                tool: limit(self.deadlines.tool),
                inactivity: limit(self.deadlines.inactivity),
            },
            retry,
            loop_limits: self.limits.loops.into(),
            stop_policy: self.on_stop.map(Into::into).unwrap_or_default(),
        }
    }
}
