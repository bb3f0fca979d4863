//! The section `[agents]`: limits of sub-agents.

use allstop_agent::{DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentLimits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of sub-agents, which an agent starts with its tool `agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AgentsConfig {
    /// Maximum nesting depth. At 0 no sub-agent can start; at 1 a sub-agent cannot start another one.
    pub depth_max: u32,
    /// Maximum number of concurrent sub-agents of a session.
    pub running_max: u32,
    /// Maximum steps of each sub-agent; never more than the maximum of a turn.
    pub steps_max: u32,
    /// Token budget of each sub-agent (input + output). A sub-agent gets at most half of the remaining budget of a run.
    pub budget_tokens: Option<u64>,
    /// Tools that sub-agents do not have.
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
        SubAgentLimits::default()
            .depth_max(self.depth_max)
            .running_max(self.running_max)
            .steps_max(self.steps_max)
            .budget_tokens(self.budget_tokens)
    }
}
