//! `session.mcp.*`: the MCP servers of a session.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use allstop_tools::mcp::{McpServer, McpState};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, MethodResult, later, open_session, read, ready};
use super::open::reopen;
use crate::client_parts::{ClientServer, EnvValueMode, server_name};
use crate::hosted::{HostedSession, SessionChoice, SessionServers};
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpParams {
    session_id: String,
    server_name: Option<String>,
    config: Option<Box<ClientServer>>,
    mode: Option<EnvValueMode>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: McpParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    let name = params.server_name.clone().unwrap_or_default();
    match method {
        "session.mcp.list" | "session.mcp.listTools" | "session.mcp.isServerRunning" => {
            let method = method.to_owned();
            let look = move |session: &HostedSession| match method.as_str() {
                "session.mcp.list" => Ok(json!({ "servers": infos_of(&server, session) })),
                "session.mcp.listTools" => tools_of(&server, session, &name),
                _ => Ok(json!({ "running": ready_server(&server, session, &name).is_some() })),
            };
            Ok(with_plugin_servers(session, look))
        }
        "session.mcp.enable" | "session.mcp.disable" => {
            let change = if method == "session.mcp.enable" {
                ServerChange::Enable
            } else {
                ServerChange::Disable
            };
            check_known(&session, &name, "No MCP host initialized")?;
            Ok(later(change.apply(server, session, name)))
        }
        "session.mcp.startServer" | "session.mcp.restartServer" => {
            match &params.config {
                None => check_known(&session, &name, "the MCP server has no `config`")?,
                Some(config) => check_new(&name, config)?,
            }
            let change = params
                .config
                .map_or(ServerChange::Enable, ServerChange::Add);
            Ok(later(change.apply(server, session, name)))
        }
        "session.mcp.stopServer" => {
            check_known(&session, &name, "the MCP server is unknown")?;
            Ok(later(ServerChange::Disable.apply(server, session, name)))
        }
        "session.mcp.reload" => {
            let message = "MCP config reload not available: the clients name the servers";
            Err(RpcError::invalid_params(message))
        }
        "session.mcp.setEnvValueMode" => {
            let mode = params.mode;
            let mode = mode.ok_or_else(|| RpcError::invalid_params("`mode` is missing"))?;
            if mode == session.choice().parts.env_value_mode {
                return ready(json!({ "mode": mode }));
            }
            Ok(later(async move {
                ServerChange::EnvValues(mode)
                    .apply(server, session, name)
                    .await?;
                Ok(json!({ "mode": mode }))
            }))
        }
        // Every server is a server of the clients or of the configuration.
        "session.mcp.removeGitHub" => ready(json!({ "removed": false })),
        "session.mcp.cancelSamplingExecution" => ready(json!({ "cancelled": false })),
        "session.mcp.executeSampling" => ready(json!({
            "action": "failure",
            "error": "sampling for MCP servers is not offered",
        })),
        "session.mcp.oauth.login" => {
            let message = if running(cx.server, &session).is_empty() {
                "MCP host is not available".to_owned()
            } else {
                match session.choice().parts.session_servers().get(&name) {
                    None => format!("the MCP server {name:?} is not configured"),
                    Some(server) if !server.is_remote() => {
                        format!("the MCP server {name:?} is not a remote server")
                    }
                    Some(_) => format!(
                        "the login at the MCP server {name:?} is not offered to clients: use \
                         `allstop mcp login`"
                    ),
                }
            };
            Err(RpcError::invalid_params(message))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Returns the answer about the servers of a session. A client that asks for their state needs the servers of the plugins.
fn with_plugin_servers(
    session: Arc<HostedSession>,
    look: impl FnOnce(&HostedSession) -> MethodResult + Send + 'static,
) -> MethodAnswer {
    let Some(servers) = session.plugin_servers().cloned() else {
        return MethodAnswer::Now(look(&session));
    };
    later(async move {
        servers.begin().await?;
        look(&session)
    })
}

fn ready_server(
    server: &CopilotServer,
    session: &HostedSession,
    name: &str,
) -> Option<Arc<McpServer>> {
    let found = find(server, session, name);
    found.filter(|server| matches!(server.state(), McpState::Ready))
}

/// Names of the tools of a server.
fn tools_of(server: &CopilotServer, session: &HostedSession, name: &str) -> MethodResult {
    let server = ready_server(server, session, name).ok_or_else(|| {
        RpcError::invalid_params(format!("the MCP server {name:?} is not connected"))
    })?;
    let tools = server.tool_names().into_iter();
    let tools = tools.map(|tool| json!({ "name": tool }));
    Ok(json!({ "tools": tools.collect::<Vec<_>>() }))
}

/// Refuses the name of a server that neither the clients nor the plugins have named.
fn check_known(session: &HostedSession, name: &str, reason: &str) -> Result<(), RpcError> {
    let name = name.to_owned();
    if session.choice().parts.session_servers().contains_key(&name) {
        return Ok(());
    }
    Err(RpcError::invalid_params(format!("{reason}: {name:?}")))
}

/// Refuses a server that could not start, before the session is closed and opened again with it.
fn check_new(name: &str, config: &ClientServer) -> Result<(), RpcError> {
    if name.is_empty() {
        return Err(RpcError::invalid_params("`serverName` is missing"));
    }
    config.check("config").map_err(RpcError::invalid_params)
}

/// Servers of the configuration and of the session.
fn running(server: &CopilotServer, session: &HostedSession) -> Vec<Arc<McpServer>> {
    let of_session = session.servers.as_ref().map(SessionServers::all);
    let of_session = of_session.iter().flat_map(|servers| servers.all());
    let configured = server.system().mcp().all().iter();
    configured.chain(of_session).cloned().collect()
}

pub(super) fn find(
    server: &CopilotServer,
    session: &HostedSession,
    name: &str,
) -> Option<Arc<McpServer>> {
    let servers = running(server, session);
    let name = server_name(name);
    servers.into_iter().find(|server| **server.name() == *name)
}

/// Describes the servers of a session in the form of the protocol.
pub(super) fn infos_of(server: &CopilotServer, session: &HostedSession) -> Vec<Value> {
    let running = running(server, session);
    let choice = session.choice();
    let of_session = choice.parts.session_servers();
    let mut named: Vec<&str> = of_session.keys().map(|name| name.as_str()).collect();
    let disabled = named.iter().copied();
    let disabled: BTreeSet<&str> = disabled
        .filter(|name| choice.parts.disabled_servers.contains(*name))
        .collect();
    let selected = choice.parts.selected();
    let of_agent = selected
        .into_iter()
        .flat_map(|agent| agent.mcp_servers.keys());
    named.extend(of_agent.map(String::as_str));
    let infos = running.iter().map(|server| {
        let mut named = named.iter();
        let name = named.find(|name| *server_name(name) == **server.name());
        let name = name.map_or(&**server.name(), |name| name);
        let (status, error) = match server.state() {
            McpState::Ready => ("connected", None),
            McpState::Starting => ("pending", None),
            McpState::Degraded { why, .. } if server.needs_token() => ("needs-auth", Some(why)),
            McpState::Degraded { why, .. } => ("failed", Some(why)),
            McpState::Stopped => ("stopped", None),
        };
        let mut info = json!({ "name": name, "status": status });
        if let Some(error) = error {
            info["error"] = json!(error);
        }
        info
    });
    let disabled = disabled.iter();
    let disabled = disabled.map(|name| json!({ "name": name, "status": "disabled" }));
    infos.chain(disabled).collect()
}

/// Change of a server of the session.
enum ServerChange {
    Enable,
    Disable,
    /// Adds or replaces the server.
    Add(Box<ClientServer>),
    /// Sets the meaning of the values of the servers' variables.
    EnvValues(EnvValueMode),
}

impl ServerChange {
    async fn apply(
        self,
        server: CopilotServer,
        session: Arc<HostedSession>,
        name: String,
    ) -> MethodResult {
        let change = move |choice: &mut SessionChoice| {
            let parts = &mut choice.parts;
            match self {
                Self::EnvValues(mode) => {
                    parts.env_value_mode = mode;
                    return Ok(());
                }
                Self::Disable => drop(parts.disabled_servers.insert(name)),
                Self::Enable => drop(parts.disabled_servers.remove(&name)),
                Self::Add(config) => {
                    parts.disabled_servers.remove(&name);
                    parts.servers.insert(name, *config);
                }
            }
            let servers = json!([parts.servers, parts.disabled_servers]);
            choice.requested.further.insert("mcpServers", servers);
            Ok(())
        };
        let id = session.id().clone();
        let session = reopen(server.clone(), id, "mcpServers", change).await?;
        if let Some(servers) = session.plugin_servers() {
            servers.begin().await?;
        }
        let data = json!({ "servers": infos_of(&server, &session) });
        session.send_ephemeral("session.mcp_servers_loaded", data);
        Ok(json!({}))
    }
}
