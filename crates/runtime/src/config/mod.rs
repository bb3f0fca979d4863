//! The configuration file `allstop.toml`.
//!
//! The binary searches for the file and passes its path. Flags override the file: they set fields after the file is
//! loaded.
//!
//! Relative paths in the file are relative to the folder of the file.

mod agents;
mod command_text;
mod data_limit;
mod error;
mod hooks;
mod load;
mod mcp;
mod mcp_json;
mod merge;
mod price;
mod project;
mod sections;
mod session;

use std::path::PathBuf;

use allstop_core::turn::StopPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use agents::AgentsConfig;
pub use error::ConfigError;
pub use hooks::{COMMAND_TIMEOUT_DEFAULT, GuardrailConfig, HookConfig, HookMoment};
pub use mcp::{McpConfig, McpLoginSection, McpServerSection, is_http_url};
pub use mcp_json::{McpJsonFile, UnusableServer};
pub use price::PriceConfig;
pub use project::{ProjectFile, ProjectFileSearch};
pub use sections::{
    DeadlinesConfig, LimitsConfig, LoopsConfig, MAX_STEPS_DEFAULT, ModelConfig, PermissionsConfig,
    ShellSection, StoreConfig, WorkspaceConfig,
};
pub use session::SessionConfig;

/// The configuration of Allstop. Every key is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Allstop configuration")]
#[non_exhaustive]
pub struct Config {
    /// Instructions to the model before the conversation, instead of the default instructions; an empty text disables
    /// them.
    pub system_prompt: Option<String>,
    /// File with the system prompt, instead of `system_prompt`.
    pub system_prompt_file: Option<PathBuf>,
    /// False excludes the project's instructions: `AGENTS.md` from the repository's root down to the working directory.
    /// True by default.
    pub project_instructions: Option<bool>,
    /// Conversation after a stopped turn: `rollback` (the state before the turn; the default of `run`) or `keep` (the
    /// completed steps and a marker of the stop).
    pub on_stop: Option<StopPolicy>,
    /// The model.
    #[serde(default)]
    pub model: ModelConfig,
    /// Limits on steps, turns and tokens.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Time limits.
    #[serde(default)]
    pub deadlines: DeadlinesConfig,
    /// Limits of sub-agents, which an agent starts with its tool `agent`.
    #[serde(default)]
    pub agents: AgentsConfig,
    /// Interactive sessions.
    #[serde(default)]
    pub session: SessionConfig,
    /// Tool calls that run, that require a question first, and that are denied.
    #[serde(default)]
    pub permissions: PermissionsConfig,
    /// Commands that a model runs with the tool `shell`.
    #[serde(default)]
    pub shell: ShellSection,
    /// Folders that the file tools may use, in addition to the working directory.
    #[serde(default)]
    pub workspace: WorkspaceConfig,
    /// Storage of sessions.
    #[serde(default, skip_serializing_if = "StoreConfig::is_empty")]
    pub store: StoreConfig,
    /// Commands that run at moments of a turn or of a session.
    #[serde(default)]
    pub hooks: Vec<HookConfig>,
    /// Commands that check the input or the output of a turn.
    #[serde(default)]
    pub guardrails: Vec<GuardrailConfig>,
    /// MCP servers.
    #[serde(default)]
    pub mcp: McpConfig,
}
