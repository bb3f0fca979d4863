//! Configuration of an MCP server: its transport, its limits and its tools.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_process::ContainmentChoice;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{HANDSHAKE_TIMEOUT_DEFAULT, SERVER_NAME_LEN_MAX};
use super::token_source::McpTokenSource;

/// Configuration of an MCP server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpServerConfig {
    /// Name of the server: its tools are called `NAME__TOOL`.
    pub name: Arc<str>,
    /// Transport to the server.
    pub transport: McpTransport,
    /// Working directory of the server's process; `None` for the folder of the system.
    pub folder: Option<PathBuf>,
    /// Time limit for the start and the listing of the tools.
    pub handshake_timeout: Duration,
    /// Time limit of a call; `None` means the general time limit of tool calls.
    pub call_timeout: Option<Duration>,
    /// Filter of the server's tools.
    pub filter: ToolFilter,
    /// Variables that the server's process does not inherit, such as secrets for other uses.
    pub env_hidden: Vec<OsString>,
    /// Action if a server continues a cancelled call.
    pub on_ignored_cancel: OnIgnoredCancel,
    /// True if the server starts at the first need of its tools, and not together with the other servers.
    pub starts_late: bool,
}

impl McpServerConfig {
    /// Creates a configuration with the default limits and all tools of the server.
    ///
    /// # Errors
    /// If the name is not valid as a part of a tool's name.
    pub fn new(name: &str, transport: McpTransport) -> Result<Self, McpConfigError> {
        if !is_server_name(name) {
            return Err(McpConfigError::Name { name: name.into() });
        }
        Ok(Self {
            name: name.into(),
            transport,
            folder: None,
            handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT,
            call_timeout: None,
            filter: ToolFilter::default(),
            env_hidden: Vec::new(),
            on_ignored_cancel: OnIgnoredCancel::default(),
            starts_late: false,
        })
    }
}

/// True if a server can have this name.
pub(super) fn is_server_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_name = (1..=SERVER_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(fits);
    // A tool's name begins with the server's name and two underscores, and this beginning must identify one server.
    is_name && !name.contains("__") && !name.ends_with('_')
}

/// Transport to a server. `Debug` hides everything that may hold secrets.
#[derive(Clone)]
pub enum McpTransport {
    /// A program that Allstop starts and that communicates over standard input and output.
    Stdio {
        /// The program: a path, or a name to look up in `PATH`.
        command: OsString,
        /// Arguments of the program.
        args: Vec<OsString>,
        /// Variables to add to the environment of the program.
        env: Vec<(OsString, OsString)>,
    },
    /// A server that is already running and is reached over streamable HTTP.
    Http {
        /// URL of the server.
        url: Arc<str>,
        /// Headers of every request.
        headers: Vec<(String, String)>,
    },
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, .. } => f.debug_tuple("Stdio").field(command).finish(),
            Self::Http { .. } => f.write_str("Http"),
        }
    }
}

/// Action on a server that continues a cancelled call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIgnoredCancel {
    /// The server keeps running, and the receipt reports the call as unreachable.
    #[default]
    KeepServer,
    /// A server that Allstop started is ended, unless another call needs it, and restarted. The receipt reports how the
    /// server ended.
    EndServer,
}

/// Filter of a server's tools: the tools that match an `allow` pattern and no `deny` pattern.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// `None` allows all tools.
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl ToolFilter {
    /// Parses patterns for the server's own tool names. Without `allow` patterns every tool is allowed.
    ///
    /// # Errors
    /// Returns the first invalid pattern.
    pub fn new<S: AsRef<str>>(allow: &[S], deny: &[S]) -> Result<Self, McpConfigError> {
        Ok(Self {
            allow: (!allow.is_empty()).then(|| patterns(allow)).transpose()?,
            deny: patterns(deny)?,
        })
    }

    /// True if the filter admits the tool with this name.
    pub fn admits(&self, tool: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(tool)) && !self.deny.is_match(tool)
    }
}

fn patterns<S: AsRef<str>>(patterns: &[S]) -> Result<GlobSet, McpConfigError> {
    let wrong = |error: &globset::Error| McpConfigError::Pattern {
        detail: error.to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern.as_ref()).build();
        set.add(glob.map_err(|error| wrong(&error))?);
    }
    set.build().map_err(|error| wrong(&error))
}

/// Error in the configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// The server's name is not valid as a part of a tool's name.
    #[error(
        "invalid server name {name:?}: use 1 to {SERVER_NAME_LEN_MAX} letters, digits, `-` or single `_`, without `_` at the end"
    )]
    Name {
        /// Name of the server.
        name: String,
    },
    /// Two servers have the same name.
    #[error("two servers have the name {name:?}")]
    Duplicate {
        /// Name of both servers.
        name: Arc<str>,
    },
    /// A pattern for tool names is invalid.
    #[error("invalid pattern for tool names: {detail}")]
    Pattern {
        /// Error in the pattern.
        detail: String,
    },
}

/// Options that all servers of a system share.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpOptions {
    /// Working directory of the servers.
    pub folder: PathBuf,
    /// Folder for the pipes to a server while the server starts.
    pub pipe_folder: PathBuf,
    /// Folder for the files with the tokens of logins. `None` means that servers have no login.
    pub login_folder: Option<PathBuf>,
    /// Source of access tokens for servers with a `url` and without configured credentials. It replaces the login.
    pub token_source: Option<Arc<dyn McpTokenSource>>,
    /// Containment of the servers' processes: the means to kill them and to prove that they are gone.
    pub containment: ContainmentChoice,
}

impl McpOptions {
    /// Creates options with these folders. The scope of a server contains its processes.
    pub fn new(folder: impl Into<PathBuf>, pipe_folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            pipe_folder: pipe_folder.into(),
            login_folder: None,
            token_source: None,
            containment: ContainmentChoice::Inherit,
        }
    }

    /// Sets the folder for the files with the tokens of logins.
    #[must_use]
    pub fn login_folder(mut self, login_folder: impl Into<Option<PathBuf>>) -> Self {
        self.login_folder = login_folder.into();
        self
    }

    /// Sets the source of access tokens.
    #[must_use]
    pub fn token_source(mut self, source: impl Into<Option<Arc<dyn McpTokenSource>>>) -> Self {
        self.token_source = source.into();
        self
    }

    /// Sets the containment of the servers' processes.
    #[must_use]
    pub fn containment(mut self, containment: ContainmentChoice) -> Self {
        self.containment = containment;
        self
    }
}
