//! Settings of sub-agents that a client changes while the session is open.

use std::collections::{BTreeMap, BTreeSet};

use allstop_agent::SubAgentKind;
use allstop_model::ReasoningEffort;
use allstop_runtime::System;
use serde::Deserialize;

use crate::provider::ClientProviders;

/// Settings of sub-agents, by the names of the agents. Unknown settings are refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct SubAgentSettings {
    agents: BTreeMap<String, SubAgentSetting>,
    /// Names of agents that the model cannot start.
    #[serde(rename = "disabledSubagents")]
    disabled: BTreeSet<String>,
}

/// Settings of one agent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SubAgentSetting {
    model: Option<String>,
    effort_level: Option<ReasoningEffort>,
    #[serde(rename = "contextTier")]
    _context_tier: Option<ContextTier>,
}

/// Context window of an agent. Both values mean the window of the model.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContextTier {
    Inherit,
    Default,
}

impl SubAgentSettings {
    /// Names of all agents that have a setting.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.agents.keys().chain(&self.disabled)
    }

    /// Returns the agent with its settings; `None` if the model cannot start it.
    pub(crate) fn apply(
        &self,
        mut kind: SubAgentKind,
        system: &System,
        providers: &ClientProviders,
    ) -> Option<SubAgentKind> {
        if self.disabled.contains(&*kind.name) {
            return None;
        }
        if let Some(setting) = self.agents.get(&*kind.name) {
            if let Some(name) = &setting.model {
                kind.model = providers.model_of_agent(system, name);
            }
            kind.reasoning_effort = setting.effort_level.or(kind.reasoning_effort);
        }
        Some(kind)
    }
}
