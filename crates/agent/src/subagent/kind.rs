//! Kinds of sub-agents: sub-agents with their own instructions, tools and model.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::terminal_text::{escape, is_unsafe};
use allstop_model::{Model, ReasoningEffort};
use allstop_tools::names;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::settings::Settings;
use crate::toolbox::Toolbox;

/// Maximum size of the list of kinds, in bytes: about 4,000 tokens. Every model call sends the list.
const LIST_BYTES_MAX: usize = 16 * 1024;

/// A kind of sub-agent, which a call of the tool `agent` chooses by its name.
#[derive(Clone)]
pub struct SubAgentKind {
    /// Name.
    pub name: Arc<str>,
    /// Description for the model that chooses, as one line.
    pub description: Arc<str>,
    /// Instructions, added to the system prompt of the sub-agent.
    pub instructions: Arc<str>,
    /// Names of the tools that the sub-agent gets, of the tools that it could get; `None` for all of them.
    pub tools: Option<Vec<Arc<str>>>,
    /// Model; `None` for the model of the agent that starts the sub-agent. If the model cannot be used, the reason: a
    /// call then fails, and the session continues.
    pub model: Option<Result<Arc<dyn Model>, Arc<str>>>,
    /// Reasoning effort; `None` for the effort of the agent that starts the sub-agent.
    pub reasoning_effort: Option<ReasoningEffort>,
}

impl fmt::Debug for SubAgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubAgentKind")
            .field("name", &self.name)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

impl SubAgentKind {
    /// Finds a kind by its name.
    ///
    /// # Errors
    /// If no kind has this name, or its model cannot be used.
    pub(super) fn find<'a>(kinds: &'a [Self], name: &str) -> Result<&'a Self, String> {
        let Some(kind) = kinds.iter().find(|kind| &*kind.name == name) else {
            let known: Vec<&str> = kinds.iter().map(|kind| &*kind.name).collect();
            return Err(match known.as_slice() {
                [] => format!("unknown agent {name:?}; leave out `agent`"),
                known => format!("unknown agent {name:?}; known agents: {}", known.join(", ")),
            });
        };
        match &kind.model {
            Some(Err(reason)) => Err(format!("the agent {name} cannot start: {reason}")),
            _ => Ok(kind),
        }
    }

    /// True if the sub-agent gets this tool.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        let is_it = |tool: &Arc<str>| **tool == *name;
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.iter().any(is_it))
    }

    /// The agent of this kind. `base` is the agent without a kind.
    pub(super) fn agent(&self, base: &Agent) -> Agent {
        let parts = base.parts();
        let system = match &parts.settings.system {
            Some(system) => format!("{system}\n\n{}", self.instructions).into(),
            None => Arc::clone(&self.instructions),
        };
        let mut settings = Settings {
            system: Some(system),
            ..parts.settings.clone()
        };
        if let Some(effort) = self.reasoning_effort {
            let request = (*settings.request).clone();
            settings.request = Arc::new(request.reasoning_effort(effort));
        }
        let kind = self.clone();
        let tools: Toolbox = parts.tools.filtered(move |name| kind.has_tool(name));
        let agent = base.with(tools, settings).named(Arc::clone(&self.name));
        match &self.model {
            Some(Ok(model)) => agent.with_model(Arc::clone(model)),
            _ => agent,
        }
    }
}

/// Description of the kinds for the model, which follows the description of the tool.
pub(super) fn describe(kinds: &[SubAgentKind]) -> String {
    let mut text = String::new();
    if kinds.is_empty() {
        return text;
    }
    text.push_str(" With `agent` it has the instructions of one of these agents:");
    for (at, kind) in kinds.iter().enumerate() {
        let line = format!(
            "\n- {}: {}",
            kind.name,
            escape(&kind.description, is_unsafe)
        );
        if text.len() + line.len() > LIST_BYTES_MAX {
            let rest = kinds.iter().skip(at).map(|kind| &*kind.name);
            let rest: Vec<&str> = rest.collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "\n- without a description here: {}", rest.join(", "));
            break;
        }
        text.push_str(&line);
    }
    text
}

/// Adds the argument `agent` to the schema of the tool, if kinds exist.
pub(super) fn with_argument(schema: Arc<Value>, kinds: &[SubAgentKind]) -> Arc<Value> {
    if kinds.is_empty() {
        return schema;
    }
    let mut schema = Arc::unwrap_or_clone(schema);
    let known: Vec<&str> = kinds.iter().map(|kind| &*kind.name).collect();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(properties) = properties {
        let description = format!(
            "Name of the agent; without it, one like you, as `{}` describes.",
            names::AGENT
        );
        properties.insert(
            "agent".to_owned(),
            json!({ "type": "string", "enum": known, "description": description }),
        );
    }
    Arc::new(schema)
}
