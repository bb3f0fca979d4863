//! Sections of the configuration with plain values.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_agent::{ContextLimits, Deadlines, RepeatUnknown, Settings};
use allstop_core::HumanDuration;
use allstop_core::turn::{Budget, LoopLimits};
use allstop_model::{AnswerLimits, RequestSettings, RetryPolicy, known_model};
use allstop_session::SessionOptions;
use allstop_tools::OutputBudgetLimits;
use allstop_tools::permission::{PermissionMode, PermissionRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, PriceConfig, data_limit};

/// Default maximum of steps per turn: more than a useful task takes, and small enough that a model in a loop costs
/// minutes, not hours.
pub const MAX_STEPS_DEFAULT: u32 = 50;

/// The model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelConfig {
    /// Name of the model: `openai::gpt-5-mini`, `claude-…` or `script:FILE`. With `base_url`, the name that the server
    /// uses.
    pub name: Option<String>,
    /// URL of an OpenAI-compatible server.
    pub base_url: Option<String>,
    /// Environment variable that contains the API key. Default: the provider's usual variable; with `base_url`, no key.
    pub api_key_env: Option<String>,
    /// Maximum tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// Sampling, reasoning, the choice of tools, and other settings of each request.
    #[serde(default)]
    pub request: RequestSettings,
    /// Time limit for connecting.
    pub connect_timeout: Option<HumanDuration>,
    /// Time limit until the provider's first token.
    pub first_token_timeout: Option<HumanDuration>,
    /// Time limit between two tokens.
    pub between_tokens_timeout: Option<HumanDuration>,
    /// Maximum length of an answer in bytes, from 1 KiB to 16 MiB: text, reasoning and arguments of calls together; 2
    /// MiB by default.
    #[serde(default, deserialize_with = "data_limit::answer_bytes_max")]
    #[schemars(range(min = 1_024, max = 16_777_216))]
    pub answer_bytes_max: Option<u32>,
    /// Maximum length of one event of the provider's stream in bytes, from 1 KiB to 16 MiB; 16 MiB by default.
    #[serde(default, deserialize_with = "data_limit::event_bytes_max")]
    #[schemars(range(min = 1_024, max = 16_777_216))]
    pub event_bytes_max: Option<u32>,
    /// Maximum retries of a model call that failed temporarily; 2 by default.
    pub retries: Option<u32>,
    /// Number of tokens in the context window of the model. A conversation of three quarters of this length is shortened.
    /// Default: the known window of a common model.
    pub context_window: Option<u64>,
    /// Price of the model's tokens, to display the cost and for limits of clients in AI credits. Default: the listed price of
    /// a common model.
    pub price: Option<PriceConfig>,
}

impl ModelConfig {
    /// Chooses another model. The configured context window and price belong to the configured model.
    pub fn choose(&mut self, name: Option<String>, base_url: Option<String>) {
        if self.name.is_some() && (&self.name, &self.base_url) != (&name, &base_url) {
            (self.context_window, self.price) = (None, None);
        }
        (self.name, self.base_url) = (name, base_url);
    }

    /// Number of tokens in the context window, if configured or known.
    pub fn context_window(&self) -> Option<u64> {
        let known = || known_model(self.name.as_deref()?, self.base_url.as_deref());
        self.context_window
            .or_else(|| known().map(|known| known.context_window))
    }

    /// Maximum estimated tokens of a request: three quarters of the context window, or less to leave room for the answer.
    pub(super) fn request_tokens_max(&self) -> Option<u64> {
        let window = self.context_window()?;
        let answer = self.max_output_tokens.unwrap_or_default().min(window / 2);
        Some(window - answer.max(window / 4))
    }

    /// Limits on the data of a provider.
    pub fn answer_limits(&self) -> AnswerLimits {
        let or = |limit: Option<u32>, default| limit.map_or(default, |limit| limit as usize);
        AnswerLimits::default()
            .answer_bytes_max(or(
                self.answer_bytes_max,
                AnswerLimits::ANSWER_BYTES_DEFAULT,
            ))
            .event_bytes_max(or(self.event_bytes_max, AnswerLimits::EVENT_BYTES_DEFAULT))
    }
}

/// Commands that a model runs with the tool `shell`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ShellSection {
    /// Variables of your environment that commands can read although they look like secrets: names, or prefixes that
    /// end with `*`.
    pub env: Vec<String>,
}

/// Limits on steps, turns and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LimitsConfig {
    /// Maximum steps per turn.
    pub max_steps: u32,
    /// Maximum turns of a session.
    pub max_turns: Option<u32>,
    /// Token budget of one run (input + output).
    pub max_budget_tokens: Option<u64>,
    /// Limits on repeated calls, which end a run.
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

/// Limits on repeated calls, which end a run. 0 disables a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LoopsConfig {
    /// Maximum repetitions of the same call (name and arguments) in a row.
    pub repeats: u32,
    /// Maximum repetitions of each of two alternating calls.
    pub ping_pongs: u32,
    /// Maximum calls of one tool, with any arguments.
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
        Self::default()
            .repeats_max(limit(loops.repeats))
            .ping_pongs_max(limit(loops.ping_pongs))
            .calls_per_tool_max(limit(loops.calls_per_tool))
    }
}

/// Time limits. A limit without a value does not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DeadlinesConfig {
    /// Time limit for all turns of a run together.
    pub run: Option<HumanDuration>,
    /// Time limit of one turn.
    pub turn: Option<HumanDuration>,
    /// Time limit of one step: its model call and its tool calls.
    pub step: Option<HumanDuration>,
    /// Time limit of one tool call. The turn continues after a call that exceeds the limit.
    pub tool: Option<HumanDuration>,
    /// Maximum time without activity of a turn.
    pub inactivity: Option<HumanDuration>,
    /// Time between the request of a stop and force; 2s by default.
    pub grace: Option<HumanDuration>,
}

/// Rules for tool calls: calls that run, and calls that require a person's answer first. A rule is a tool, such as
/// `read`, or the beginning of a command, such as `shell:git status`. `deny` overrides `ask`, and `ask` overrides
/// `allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PermissionsConfig {
    /// Calls that run without a question.
    pub allow: Vec<PermissionRule>,
    /// Calls that require a question first, even if `allow` names them.
    pub ask: Vec<PermissionRule>,
    /// Calls that never run.
    pub deny: Vec<PermissionRule>,
    /// Calls that run without a question if no rule applies: `plan`, `ask` (the default) or `accept-edits`.
    pub mode: PermissionMode,
    /// Handling of a call that repeats a call of an earlier turn whose outcome is unknown, as after a crash: `ask` (the
    /// default: a person is asked, and without a person the call is denied), `allow` (the rules alone decide) or `deny`.
    pub repeat_unknown: RepeatUnknown,
}

/// Folders that the file tools may use, in addition to the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WorkspaceConfig {
    /// Folders that may be read.
    pub read: Vec<PathBuf>,
    /// Folders that may be read and written.
    pub write: Vec<PathBuf>,
}

/// Storage of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreConfig {
    /// File of the store.
    pub path: Option<PathBuf>,
    /// Maximum size of the files with long output of one session in bytes, from 1 MiB to 1 TiB; 1 GiB by default. Above
    /// this size, the oldest files of the session are removed.
    #[serde(default, deserialize_with = "data_limit::session_output_bytes_max")]
    #[schemars(range(min = 1_048_576_u64, max = 1_099_511_627_776_u64))]
    pub session_output_bytes_max: Option<u64>,
    /// Maximum size of the files with long output of all sessions in bytes, from 1 MiB to 1 TiB; 8 GiB by default.
    /// Above this size, the oldest files of all sessions are removed.
    #[serde(default, deserialize_with = "data_limit::output_bytes_max")]
    #[schemars(range(min = 1_048_576_u64, max = 1_099_511_627_776_u64))]
    pub output_bytes_max: Option<u64>,
}

impl StoreConfig {
    /// True if no key is set.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Limits on the files with long output.
    pub fn output_limits(&self) -> OutputBudgetLimits {
        let default = OutputBudgetLimits::default();
        OutputBudgetLimits::default()
            .session_bytes_max(
                self.session_output_bytes_max
                    .unwrap_or(default.session_bytes_max),
            )
            .store_bytes_max(self.output_bytes_max.unwrap_or(default.store_bytes_max))
    }
}

impl Config {
    /// Limits on the requests to the configured model, or to the model with this name. A client has chosen that model, and
    /// only a name with a provider identifies its server.
    pub(crate) fn context_limits(&self, chosen: Option<&str>) -> ContextLimits {
        let tokens_max = match chosen {
            None => self.model.request_tokens_max(),
            Some(name) => {
                let model = ModelConfig {
                    name: name.contains("::").then(|| name.to_owned()),
                    max_output_tokens: self.model.max_output_tokens,
                    ..ModelConfig::default()
                };
                model.request_tokens_max()
            }
        };
        ContextLimits::new(self.session.turns_kept()).tokens_max(tokens_max)
    }

    /// Options of sessions with the configured model, or with the model of this name.
    pub(crate) fn session_options(&self, chosen: Option<&str>) -> SessionOptions {
        let configured = self.session.compact_above_tokens;
        let tokens_max = configured.or_else(|| self.context_limits(chosen).tokens_max);
        self.session.options(tokens_max)
    }

    /// Settings of an agent with this configuration. Each call creates a new budget.
    pub(crate) fn settings(&self) -> Settings {
        let limit = |duration: Option<HumanDuration>| duration.map(Into::into);
        let mut retry = RetryPolicy::default();
        if let Some(retries) = self.model.retries {
            retry.attempts_max = retries.saturating_add(1);
        }
        // Each session composes its prompt (`ComposedPrompt`), `SystemOptions::answer` sets the format of answers, and the
        // opener of a session chooses the texts of calls.
        Settings::default()
            .steps_max(self.limits.max_steps)
            .turns_max(self.limits.max_turns)
            .budget(self.limits.max_budget_tokens.map(Budget::of_tokens))
            .output_tokens_max(self.model.max_output_tokens)
            .request(Arc::new(self.model.request.clone()))
            .context(self.context_limits(None))
            .deadlines(
                Deadlines::default()
                    .run(limit(self.deadlines.run))
                    .turn(limit(self.deadlines.turn))
                    .step(limit(self.deadlines.step))
                    .first_token(limit(self.model.first_token_timeout))
                    .between_tokens(limit(self.model.between_tokens_timeout))
                    .tool(limit(self.deadlines.tool))
                    .inactivity(limit(self.deadlines.inactivity)),
            )
            .retry(retry)
            .loop_limits(self.limits.loops.into())
            .stop_policy(self.on_stop.unwrap_or_default())
            .repeat_unknown(self.permissions.repeat_unknown)
    }
}
