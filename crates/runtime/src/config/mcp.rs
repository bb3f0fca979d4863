//! Configuration of MCP servers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command_text;
use allstop_core::HumanDuration;
use allstop_tools::mcp::OnIgnoredCancel;

/// True if the URL has a scheme that MCP servers use: `http` or `https`.
pub fn is_http_url(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        let mut known = ["http", "https"].iter();
        known.any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

/// MCP servers: servers of tools that use the Model Context Protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct McpConfig {
    /// The servers by name. Models call each of their tools `NAME__TOOL`.
    pub servers: BTreeMap<String, McpServerSection>,
}

/// An MCP server: a `command` to start, or the `url` of a running server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct McpServerSection {
    /// Program of a server that uses standard input and output: a path, or a name to look up in `PATH`.
    #[serde(deserialize_with = "command_text::optional")]
    pub command: Option<String>,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Variables to add to the program's environment.
    pub env: BTreeMap<String, String>,
    /// Variables of your environment that the program inherits although they look like secrets: names, or prefixes that
    /// end with `*`.
    pub inherit_env: Vec<String>,
    /// URL of a running server, reached by streamable HTTP.
    pub url: Option<String>,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
    /// Environment variable that contains the token for `Authorization: Bearer`.
    pub bearer_token_env: Option<String>,
    /// Login of a person with a browser, which `allstop mcp login` starts.
    pub login: McpLoginSection,
    /// Time limit for the start and the listing of the tools; 20s by default.
    pub handshake_timeout: Option<HumanDuration>,
    /// Time limit of a call. Default: the limit of every tool, or 10m without that limit.
    pub call_timeout: Option<HumanDuration>,
    /// Tools to use, by the server's own names, with `*` and `?` as wildcards; all tools if empty.
    pub allow: Vec<String>,
    /// Tools to exclude, even if `allow` names them.
    pub deny: Vec<String>,
    /// Action on a server that continues a cancelled call.
    pub on_ignored_cancel: OnIgnoredCancel,
    /// True for a server of a project's `.mcp.json`: `${NAME}` in its values stands for an environment variable.
    #[serde(skip)]
    pub expands_variables: bool,
}

/// Login at an MCP server. The defaults are right for servers at which a client can register itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct McpLoginSection {
    /// Id of a client that is registered at the authorization server, or the HTTPS address of the client's description.
    /// Without it, the client registers itself.
    pub client_id: Option<String>,
    /// Environment variable that contains the secret of the registered client.
    pub client_secret_env: Option<String>,
    /// Rights to request. Without any, those that the server names.
    pub scopes: Vec<String>,
    /// Port of this machine to which the browser returns; any free port by default.
    pub port: Option<u16>,
}
