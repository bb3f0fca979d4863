//! Servers of tools, as the configuration names them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allstop_core::WrittenDuration;

/// Servers of tools, which speak the Model Context Protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// The servers by name. A tool of theirs is called `NAME__TOOL`.
    pub servers: BTreeMap<String, McpServerSection>,
}

/// A server of tools: a `command` that is started, or the `url` of one that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerSection {
    /// The program, spoken to by its standard input and output: a path, or a name that is looked up in `PATH`.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to its environment.
    pub env: BTreeMap<String, String>,
    /// Variables of your environment that it inherits although they look like secrets: names, or beginnings of names with
    /// `*` at their end.
    pub inherit_env: Vec<String>,
    /// The URL of a server that runs, reached by streamable HTTP.
    pub url: Option<String>,
    /// Headers that are sent with every request.
    pub headers: BTreeMap<String, String>,
    /// The environment variable that holds the token that is sent as `Authorization: Bearer`.
    pub bearer_token_env: Option<String>,
    /// How long it may take to start and to list its tools; 20s if not given.
    pub handshake_timeout: Option<WrittenDuration>,
    /// How long a call may take. If not given it is the limit of every tool, and 10m without one.
    pub call_timeout: Option<WrittenDuration>,
    /// Tools that are used, by the server's own names, with `*` and `?`; if none is given, all.
    pub allow: Vec<String>,
    /// Tools that are not used, whatever allows them.
    pub deny: Vec<String>,
    /// What becomes of a server that goes on with a call that was cancelled.
    pub on_ignored_cancel: OnIgnoredCancel,
}

/// What becomes of a server that goes on with a call that was cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIgnoredCancel {
    /// It runs on, and the receipt says that the call is out of reach.
    #[default]
    KeepServer,
    /// One that was started here is ended, if no other call needs it, and started anew; the receipt says how it ended.
    EndServer,
}
