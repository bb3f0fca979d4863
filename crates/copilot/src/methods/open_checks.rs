//! Checks of the parts that a client names when it opens a session.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use allstop_jsonrpc::RpcError;
use allstop_tools::{TOOL_NAME_LEN_MAX, is_valid_tool_name};
use serde_json::Value;

use crate::client_parts::{ClientAgent, ClientServer};
use crate::hosted::DeclaredTool;
use crate::refusal::check_text;

/// Refuses a declaration with tools that cannot be offered to the model. Otherwise such tools would be missing without
/// a warning.
pub(super) fn check_tools(tools: &[DeclaredTool]) -> Result<(), RpcError> {
    let mut names = HashSet::new();
    for tool in tools {
        let name = &tool.name;
        if !is_valid_tool_name(name) {
            return Err(RpcError::invalid_params(format!(
                "the tool name {name:?} is invalid: use 1 to {TOOL_NAME_LEN_MAX} letters, digits, `_` and `-` of ASCII"
            )));
        }
        if !names.insert(name) {
            return Err(RpcError::invalid_params(format!(
                "the tool {name:?} is declared twice"
            )));
        }
        let is_schema = |parameters: &Value| parameters.is_null() || parameters.is_object();
        if !tool.parameters.as_ref().is_none_or(is_schema) {
            return Err(RpcError::invalid_params(format!(
                "`tools[{name}].parameters` is no object: use a JSON Schema, or omit it for a tool without parameters"
            )));
        }
    }
    Ok(())
}

/// Refuses agents with equal names, and agents with unusable MCP servers.
pub(super) fn check_agents(agents: &[ClientAgent]) -> Result<(), RpcError> {
    let mut names = HashSet::new();
    for (index, agent) in agents.iter().enumerate() {
        let name = agent.name.as_str();
        check_text(&format!("customAgents[{index}].name"), name)?;
        if !names.insert(name) {
            return Err(RpcError::invalid_params(format!(
                "`customAgents` has two agents {name:?}: use different names"
            )));
        }
        check_servers(
            &format!("customAgents[{name}].mcpServers"),
            &agent.mcp_servers,
        )?;
    }
    Ok(())
}

/// Refuses slash commands without a name, and commands with equal names: only one of them could run.
pub(super) fn check_commands(commands: &[&str]) -> Result<(), RpcError> {
    let mut names = HashSet::new();
    for (index, name) in commands.iter().enumerate() {
        check_text(&format!("commands[{index}].name"), name)?;
        if !names.insert(name) {
            return Err(RpcError::invalid_params(format!(
                "`commands` has two commands {name:?}: use different names"
            )));
        }
    }
    Ok(())
}

/// Refuses MCP servers that could not start. `field` is the name of the servers in the parameters.
pub(super) fn check_servers(
    field: &str,
    servers: &BTreeMap<String, ClientServer>,
) -> Result<(), RpcError> {
    for (name, server) in servers {
        if name.is_empty() {
            return Err(RpcError::invalid_params(format!(
                "`{field}` has a server with an empty name: use a name with at least one letter or digit"
            )));
        }
        let checked = server.check(&format!("{field}.{name}"));
        checked.map_err(RpcError::invalid_params)?;
    }
    Ok(())
}

/// Refuses a working directory in which no command could run. The server does not have the working directory of the
/// client, so a relative path has no clear meaning.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn check_folder(folder: Option<&Path>) -> Result<(), RpcError> {
    let Some(folder) = folder else {
        return Ok(());
    };
    if !folder.is_absolute() {
        let reason = "but it must be an absolute path: join it with the folder of the program";
        return Err(refused_folder("workingDirectory", folder, reason));
    }
    check_exists("workingDirectory", folder).await
}

/// Refuses folders with skills that do not exist. Otherwise their skills would be missing without a warning.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn check_skill_folders(folders: &[PathBuf]) -> Result<(), RpcError> {
    for (index, folder) in folders.iter().enumerate() {
        check_exists(&format!("skillDirectories[{index}]"), folder).await?;
    }
    Ok(())
}

fn refused_folder(field: &str, folder: &Path, reason: &str) -> RpcError {
    RpcError::invalid_params(format!("`{field}` is `{}`, {reason}", folder.display()))
}

async fn check_exists(field: &str, folder: &Path) -> Result<(), RpcError> {
    let refused = |reason: &str| Err(refused_folder(field, folder, reason));
    match tokio::fs::metadata(folder).await {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => refused("which is not a folder: use the path of a folder"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            refused("which does not exist: create the folder, or use another one")
        }
        // A folder that the server cannot inspect may still be usable.
        Err(_) => Ok(()),
    }
}
