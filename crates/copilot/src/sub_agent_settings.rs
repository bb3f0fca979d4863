//! Settings of sub-agents that a client changes while the session is open.

use std::collections::{BTreeMap, BTreeSet};

use allstop_agent::SubAgentKind;
use allstop_model::ReasoningEffort;
use allstop_runtime::System;
use serde::Deserialize;
use serde_json::{Map, Value};

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
    context_tier: Option<ContextTier>,
}

/// Context window of an agent. Each agent has the window of its model, so `LongContext` has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContextTier {
    Inherit,
    Default,
    LongContext,
}

impl SubAgentSettings {
    /// Names of the agents with settings other than their removal.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &String> {
        self.agents.keys()
    }

    /// Names of the agents that the model cannot start.
    pub(crate) fn disabled(&self) -> impl Iterator<Item = &String> {
        self.disabled.iter()
    }

    /// Paths and values of the settings that have no effect.
    pub(crate) fn ignored(&self) -> Map<String, Value> {
        let tiers = self.agents.iter().filter(|(_, setting)| {
            // The other values mean the window of the model.
            setting.context_tier == Some(ContextTier::LongContext)
        });
        let ignored = tiers.map(|(name, _)| {
            let path = format!("agents.{name}.contextTier");
            (path, Value::from("long_context"))
        });
        ignored.collect()
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
