//! Configuration of MCP servers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allstop_core::HumanDuration;
use allstop_tools::mcp::OnIgnoredCancel;

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
}
