//! The configured MCP servers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_model::provider::KeyLookup;
use allstop_scope::{Scope, ScopeOptions};
use allstop_tools::mcp::{
    CALL_TIMEOUT_DEFAULT, LoginClient, LoginOptions, McpOptions, McpServerConfig, McpServers,
    McpTransport, ToolFilter,
};

use super::hidden::without_exempted;
use super::options::SystemOptions;
use crate::config::{Config, McpLoginSection, McpServerSection, UnusableServer, is_http_url};
use crate::error::{StartError, StartErrorKind};

/// Label of the servers' scope. The scope is a child of the process's scope. A stop of a turn or of a session therefore
/// does not end servers that other sessions use.
const SCOPE: &str = "mcp";

/// A further MCP server of one session, which the opener of the session names.
#[derive(Debug, Clone)]
pub struct SessionMcpServer {
    /// Name of the server.
    pub name: String,
    /// Settings of the server.
    pub section: McpServerSection,
    /// Working directory of the server's process; `None` for the folder of the session.
    pub folder: Option<PathBuf>,
    /// True if the values of the server's variables are names of environment variables of this process, which have the
    /// values.
    pub is_env_indirect: bool,
    /// True if the server starts at the first need of its tools, see [`McpServers::begin_late`].
    pub starts_late: bool,
}

/// Parts of a system that the configuration of a server refers to.
pub(super) struct ServerContext<'a> {
    pub(super) config: &'a Config,
    pub(super) hidden_variables: &'a [OsString],
    pub(super) keys: &'a KeyLookup,
}

/// Checks the configuration of the servers. Starts no server.
///
/// # Errors
/// Returns an error for the first server that cannot be used.
pub fn mcp_servers(options: &SystemOptions) -> Result<McpServers, StartError> {
    servers_of(options, |_| true)
}

/// Like [`mcp_servers`], but leaves out the unusable servers of `.mcp.json`: a server of the team must not prevent the
/// start for a person who does not have its variables.
pub(super) fn usable_mcp_servers(options: &SystemOptions) -> Result<McpServers, StartError> {
    let unusable = unusable_project_servers(&options.config, &options.keys);
    for server in &unusable {
        tracing::warn!(server.name, server.why, "an MCP server is left out");
    }
    servers_of(options, |name| {
        unusable.iter().all(|server| server.name != name)
    })
}

/// The servers of `.mcp.json` in this configuration that a system leaves out.
pub fn unusable_project_servers(config: &Config, keys: &KeyLookup) -> Vec<UnusableServer> {
    let context = ServerContext {
        config,
        hidden_variables: &[],
        keys,
    };
    let servers = config.mcp.servers.iter();
    let servers = servers.filter(|(_, section)| section.expands_variables);
    let unusable = servers.filter_map(|(name, section)| {
        let why = server_config(name, section, &context).err()?;
        Some(UnusableServer {
            name: name.clone(),
            why,
        })
    });
    unusable.collect()
}

fn servers_of(
    options: &SystemOptions,
    is_used: impl Fn(&str) -> bool,
) -> Result<McpServers, StartError> {
    let context = ServerContext {
        config: &options.config,
        hidden_variables: &options.hidden_variables,
        keys: &options.keys,
    };
    let mut configs = Vec::new();
    for (name, section) in &options.config.mcp.servers {
        if is_used(name) {
            configs.push(server(name, section, &context)?);
        }
    }
    let shared = McpOptions::new(options.folder.clone(), options.spill_folder.clone())
        .containment(options.scopes.containment.clone())
        .login_folder(options.login_folder.clone());
    McpServers::new(configs, shared)
        .map_err(|error| StartError::new(StartErrorKind::Config, error.to_string()))
}

/// Creates the further servers of a session with these common options. Starts no server.
///
/// # Errors
/// Returns an error for the first server that cannot be used.
pub(super) fn session_servers(
    context: &ServerContext<'_>,
    servers: &[SessionMcpServer],
    shared: McpOptions,
) -> Result<McpServers, StartError> {
    let mut configs = Vec::new();
    for one in servers {
        let section = with_env(one, context.keys)?;
        let mut config = server(&one.name, &section, context)?;
        config.folder.clone_from(&one.folder);
        config.starts_late = one.starts_late;
        configs.push(config);
    }
    McpServers::new(configs, shared)
        .map_err(|error| StartError::new(StartErrorKind::Config, error.to_string()))
}

/// Checks the settings of a further server. Starts no server.
///
/// # Errors
/// Returns an error if the server cannot be used.
pub(super) fn check_session_server(
    context: &ServerContext<'_>,
    one: &SessionMcpServer,
) -> Result<(), StartError> {
    let section = with_env(one, context.keys)?;
    server(&one.name, &section, context).map(drop)
}

/// Returns the settings of a server with the values of its variables.
fn with_env(one: &SessionMcpServer, keys: &KeyLookup) -> Result<McpServerSection, StartError> {
    let mut section = one.section.clone();
    for value in section.env.values_mut().filter(|_| one.is_env_indirect) {
        *value = keys(value).ok_or_else(|| {
            let (name, value) = (&one.name, &*value);
            let message = format!(
                "the MCP server `{name}` cannot be used: the environment variable {value} is not set"
            );
            StartError::new(StartErrorKind::Config, message)
        })?;
    }
    Ok(section)
}

/// Starts the further servers of a session, except late ones, in a scope below the scope of the process. Waits for each
/// server at most for its own time limit. Returns the scope, to close after the servers.
pub(super) async fn start_session_servers(
    servers: &McpServers,
    process: &Scope,
    session: &SessionId,
) -> Result<Scope, StartError> {
    let stopped = |refused: allstop_scope::NotStarted| {
        StartError::new(StartErrorKind::Stopped, refused.to_string())
    };
    let label = format!("{SCOPE}/of/{session}");
    let scope = process.child(label, ScopeOptions::default());
    let scope = scope.map_err(stopped)?;
    servers.start(&scope).await.map_err(stopped)?;
    Ok(scope)
}

/// Options of the login at a server. `scopes` replaces the rights in the configuration.
///
/// # Errors
/// If the configuration of the login is not complete.
pub fn mcp_login_options(
    section: &McpLoginSection,
    scopes: &[String],
    keys: &KeyLookup,
) -> Result<LoginOptions, StartError> {
    let wrong = |what: String| StartError::new(StartErrorKind::Config, what);
    let secret = section.client_secret_env.as_ref().map(|variable| {
        keys(variable)
            .ok_or_else(|| wrong(format!("the environment variable {variable} is not set")))
    });
    let client = match (&section.client_id, secret.transpose()?) {
        (Some(id), secret) => LoginClient::Registered {
            id: id.clone(),
            secret,
        },
        (None, None) => LoginClient::Dynamic,
        (None, Some(_)) => {
            return Err(wrong("`client_secret_env` requires `client_id`".to_owned()));
        }
    };
    let scopes = if scopes.is_empty() {
        &section.scopes
    } else {
        scopes
    };
    Ok(LoginOptions::default()
        .client(client)
        .scopes(scopes.to_vec())
        .port(section.port.unwrap_or_default()))
}

/// Starts the servers. Waits for each server at most for its own time limit.
pub(super) async fn start(servers: &McpServers, process: &Scope) -> Result<(), StartError> {
    if servers.all().is_empty() {
        return Ok(());
    }
    let stopped = |refused: allstop_scope::NotStarted| {
        StartError::new(StartErrorKind::Stopped, refused.to_string())
    };
    let scope = process.child(SCOPE, ScopeOptions::default());
    servers
        .start(&scope.map_err(stopped)?)
        .await
        .map_err(stopped)
}

/// True if a permission rule may name a tool of a configured server. The tools are known only after the start of the
/// server.
pub(super) fn may_have_tool(config: &Config, rule: &str) -> bool {
    rule.split_once("__")
        .is_some_and(|(server, tool)| config.mcp.servers.contains_key(server) && !tool.is_empty())
}

fn server(
    name: &str,
    section: &McpServerSection,
    context: &ServerContext<'_>,
) -> Result<McpServerConfig, StartError> {
    server_config(name, section, context).map_err(|what| {
        StartError::new(
            StartErrorKind::Config,
            format!("the MCP server `{name}` cannot be used: {what}"),
        )
        .hint(if section.expands_variables {
            "change the server in .mcp.json, or leave the file out: --project-config ignore"
                .to_owned()
        } else {
            format!("change the section `[mcp.servers.{name}]`")
        })
    })
}

fn server_config(
    name: &str,
    section: &McpServerSection,
    context: &ServerContext<'_>,
) -> Result<McpServerConfig, String> {
    let section = &section.expanded(&**context.keys)?;
    let transport = transport(section, context.keys)?;
    let wrong = |error: allstop_tools::mcp::McpConfigError| error.to_string();
    let mut server = McpServerConfig::new(name, transport).map_err(wrong)?;
    server.env_hidden = without_exempted(context.hidden_variables, &section.inherit_env);
    server.filter = ToolFilter::new(&section.allow, &section.deny).map_err(wrong)?;
    if let Some(limit) = section.handshake_timeout {
        server.handshake_timeout = limit.into();
    }
    server.call_timeout = match (section.call_timeout, context.config.deadlines.tool) {
        (Some(limit), _) => Some(limit.into()),
        (None, Some(_every_tool_s)) => None,
        (None, None) => Some(CALL_TIMEOUT_DEFAULT),
    };
    server.on_ignored_cancel = section.on_ignored_cancel;
    Ok(server)
}

fn transport(section: &McpServerSection, keys: &KeyLookup) -> Result<McpTransport, String> {
    let of_http = !section.headers.is_empty()
        || section.bearer_token_env.is_some()
        || section.login != McpLoginSection::default();
    let of_command =
        !section.args.is_empty() || !section.env.is_empty() || !section.inherit_env.is_empty();
    match (&section.command, &section.url) {
        // A variable of the command can be empty.
        (Some(command), None) if command.trim().is_empty() => {
            Err("its `command` is empty".to_owned())
        }
        (Some(command), None) if !of_http => Ok(McpTransport::Stdio {
            command: command.into(),
            args: section.args.iter().map(Into::into).collect(),
            env: section
                .env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }),
        (None, Some(url)) if !of_command => {
            if !is_http_url(url) {
                return Err("its `url` does not begin with http:// or https://".to_owned());
            }
            let mut headers: Vec<(String, String)> = section.headers.clone().into_iter().collect();
            if let Some(variable) = &section.bearer_token_env {
                let token = keys(variable)
                    .ok_or_else(|| format!("the environment variable {variable} is not set"))?;
                headers.push(("authorization".to_owned(), format!("Bearer {token}")));
            }
            Ok(McpTransport::Http {
                url: Arc::from(url.as_str()),
                headers,
            })
        }
        (Some(_), None) => {
            Err("`headers`, `bearer_token_env` and `login` require `url`".to_owned())
        }
        (None, Some(_)) => Err("`args`, `env` and `inherit_env` require `command`".to_owned()),
        (None, None) => Err("neither `command` nor `url` is given".to_owned()),
        (Some(_), Some(_)) => Err("both `command` and `url` are given".to_owned()),
    }
}
