//! Kinds of sub-agents, from the definitions of agents.

use std::sync::Arc;

use allstop_agent::SubAgentKind;
use allstop_model::Model;

use super::options::{ModelChoice, SystemOptions};
use super::parts::open_model_of;
use crate::config::ModelConfig;
use crate::definitions::AgentDefinition;

/// Creates the kinds, with their models. Sends no request. A model that cannot be used fails only the calls that need
/// it.
pub(super) fn of(options: &SystemOptions) -> Arc<[SubAgentKind]> {
    let agents = options.definitions.agents.values();
    agents.map(|agent| kind(options, agent)).collect()
}

fn kind(options: &SystemOptions, agent: &AgentDefinition) -> SubAgentKind {
    let tools = agent.tools.as_ref();
    SubAgentKind {
        reasoning_effort: None,
        name: agent.name.as_str().into(),
        description: agent.description.as_str().into(),
        instructions: agent.instructions.as_str().into(),
        tools: tools.map(|tools| tools.iter().map(|tool| tool.as_str().into()).collect()),
        model: agent.model.as_deref().map(|name| model(options, name)),
    }
}

/// A model of the configured server, or of the provider of its name.
fn model(options: &SystemOptions, name: &str) -> Result<Arc<dyn Model>, Arc<str>> {
    let config = ModelConfig {
        name: Some(name.to_owned()),
        ..options.config.model.clone()
    };
    let choice = ModelChoice::of(&config);
    open_model_of(options, &config, choice).map_err(|error| match &error.hint {
        Some(hint) => format!("{error} ({hint})").into(),
        None => error.to_string().into(),
    })
}
