//! The section of agents that an agent starts.

use allstop_agent::{DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentLimits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Agents that an agent starts, by its tool `agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentsConfig {
    /// How deep agents start agents: at 1 those that the session's own starts start none, at 0 there are none at all.
    pub depth_max: u32,
    /// How many of a session run at once.
    pub running_max: u32,
    /// Steps of each; never more than those of a turn.
    pub steps_max: u32,
    /// Tokens of each, in and out together. Of a budget it gets half of what is left at most.
    pub budget_tokens: Option<u64>,
    /// Tools that they do not have.
    pub exclude: Vec<String>,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            depth_max: DEPTH_MAX_DEFAULT,
            running_max: RUNNING_MAX_DEFAULT,
            steps_max: STEPS_MAX_DEFAULT,
            budget_tokens: None,
            exclude: Vec::new(),
        }
    }
}

impl AgentsConfig {
    pub(crate) fn limits(&self) -> SubAgentLimits {
        SubAgentLimits {
            depth_max: self.depth_max,
            running_max: self.running_max,
            steps_max: self.steps_max,
            budget_tokens: self.budget_tokens,
        }
    }
}
