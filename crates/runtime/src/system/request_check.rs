//! Check of the settings of requests without a request.

use std::sync::Arc;

use allstop_core::Message;
use allstop_model::{Model, ModelRequest, ToolChoice, ToolDeclaration};
use allstop_tools::names;
use serde_json::json;

use super::mcp::may_have_tool;
use super::open::check_rules;
use crate::config::Config;
use crate::error::{StartError, StartErrorKind};

/// Checks the permission rules and the settings of requests as a run does, and sends nothing. The tools of an MCP server are
/// known only after its start, so each `SERVER__TOOL` of a configured server counts as a tool.
///
/// # Errors
/// If a rule names an unknown tool, or if a request with these settings would fail before it is sent.
pub fn check_requests(config: &Config, model: &dyn Model) -> Result<(), StartError> {
    check_rules(config)?;
    let settings = config.model.request.clone();
    let chosen = match &settings.tool_choice {
        ToolChoice::Tool(name) if may_have_tool(config, name) => Some(name.as_str()),
        _ => None,
    };
    let builtin = names::ALL.iter().copied();
    let all = builtin.chain([names::AGENT, names::SKILL]).chain(chosen);
    let tools: Arc<[_]> = all.map(declaration).collect();
    if let Some(problem) = settings.problem(&tools) {
        let error = StartError::new(StartErrorKind::Config, problem);
        return Err(error.hint("change the section `[model.request]`"));
    }
    let request = ModelRequest::new(vec![Arc::new(Message::user("hello"))])
        .tools(tools)
        .settings(Arc::new(settings))
        .max_output_tokens(config.model.max_output_tokens);
    model.check(&request)?;
    Ok(())
}

fn declaration(name: &str) -> ToolDeclaration {
    ToolDeclaration {
        name: name.into(),
        description: "".into(),
        input_schema: Arc::new(json!({"type": "object"})),
    }
}
