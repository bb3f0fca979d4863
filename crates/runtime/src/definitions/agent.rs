//! Agents: kinds of sub-agents with their own instructions.

use std::path::PathBuf;

use serde::Deserialize;

use super::files::DefinitionFile;
use super::front_matter::{NameList, description, name, split};

/// A kind of sub-agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDefinition {
    /// Name, by which the model chooses the agent.
    pub name: String,
    /// Description for the model, as one line.
    pub description: String,
    /// Names of the tools; `None` for all tools of a sub-agent.
    pub tools: Option<Vec<String>>,
    /// Name of the model; `None` for the model of the agent that starts this agent.
    pub model: Option<String>,
    /// Instructions, added to the system prompt.
    pub instructions: String,
    /// File of the agent.
    pub path: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AgentValues {
    name: Option<String>,
    description: Option<String>,
    tools: Option<NameList>,
    model: Option<String>,
}

impl AgentDefinition {
    pub(super) fn parse(file: &DefinitionFile) -> Result<Self, String> {
        let (values, instructions) = split::<AgentValues>(&file.text)?;
        // Other agents write `inherit` for the model of the agent above.
        let model = values
            .model
            .filter(|model| !model.is_empty() && model != "inherit");
        Ok(Self {
            name: name(values.name.as_deref().unwrap_or(&file.name))?,
            description: description(values.description.as_deref())?,
            tools: values.tools.map(|tools| tools.0),
            model,
            instructions,
            path: file.path.clone(),
        })
    }
}
