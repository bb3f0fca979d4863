//! The configuration file `allstop.toml`.
//!
//! Where the file is looked for is the binary's to say; here it is a path, or none. Flags override what it says, by
//! setting the fields after loading.
//!
//! Relative paths in the file are relative to the folder that the file is in.

mod agents;
mod error;
mod hooks;
mod load;
mod mcp;
mod rule;
mod sections;
mod session;
mod text;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use agents::AgentsConfig;
pub use error::ConfigError;
pub use hooks::{COMMAND_TIMEOUT_DEFAULT, GuardrailConfig, GuardrailStage, HookConfig, HookMoment};
pub use mcp::{McpConfig, McpServerSection, OnIgnoredCancel};
pub use rule::PermissionRule;
pub use sections::{
    DeadlinesConfig, LimitsConfig, LoopsConfig, MAX_STEPS_DEFAULT, ModelConfig, OnStop,
    PermissionsConfig, ShellSection, StoreConfig, WorkspaceConfig,
};
pub use session::SessionConfig;

/// The configuration of Allstop. Every key may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Allstop configuration")]
pub struct Config {
    /// What the model is told before the conversation.
    pub system_prompt: Option<String>,
    /// A file with the system prompt, in place of `system_prompt`.
    pub system_prompt_file: Option<PathBuf>,
    /// What a stopped turn leaves: `rollback` (the conversation as it was; the default of `run`) or `keep` (the
    /// completed steps and a marker of the stop).
    pub on_stop: Option<OnStop>,
    /// The model.
    #[serde(default)]
    pub model: ModelConfig,
    /// Limits of steps, turns and tokens.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Limits of time.
    #[serde(default)]
    pub deadlines: DeadlinesConfig,
    /// Agents that an agent starts, by its tool `agent`.
    #[serde(default)]
    pub agents: AgentsConfig,
    /// Sessions that a person talks to.
    #[serde(default)]
    pub session: SessionConfig,
    /// Which tool calls run, and which a person is asked about.
    #[serde(default)]
    pub permissions: PermissionsConfig,
    /// Commands that a model runs.
    #[serde(default)]
    pub shell: ShellSection,
    /// What the file tools may touch beside the working directory.
    #[serde(default)]
    pub workspace: WorkspaceConfig,
    /// Where sessions are kept.
    #[serde(default)]
    pub store: StoreConfig,
    /// Commands that hear of moments of a turn.
    #[serde(default)]
    pub hooks: Vec<HookConfig>,
    /// Commands that look at what goes in and what comes out.
    #[serde(default)]
    pub guardrails: Vec<GuardrailConfig>,
    /// Servers of tools.
    #[serde(default)]
    pub mcp: McpConfig,
}
