//! What a server is: how it is reached, and what of it is used.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_scope::process::ContainmentChoice;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::limits::HANDSHAKE_TIMEOUT_DEFAULT;

/// The longest name of a server: with the two underscores it leaves a tool forty characters.
const NAME_LEN_MAX: usize = 22;

/// A server.
#[derive(Debug, Clone)]
pub struct McpServerConfig {
    /// Its name: its tools are `NAME__TOOL`.
    pub name: Arc<str>,
    /// How it is reached.
    pub transport: McpTransport,
    /// How long it may take to start and to list its tools.
    pub handshake_timeout: Duration,
    /// How long a call may take; `None`: what holds for every tool.
    pub call_timeout: Option<Duration>,
    /// Which of its tools are used.
    pub filter: ToolFilter,
    /// Variables that its process does not inherit: secrets that are not its own.
    pub env_hidden: Vec<OsString>,
    /// What becomes of a server that goes on with a call that was cancelled.
    pub on_ignored_cancel: OnIgnoredCancel,
}

impl McpServerConfig {
    /// A server with the usual bounds, all of whose tools are used.
    ///
    /// # Errors
    /// If the name could not be part of a tool's.
    pub fn new(name: &str, transport: McpTransport) -> Result<Self, McpConfigError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(fits);
        // What is in front of the first two underscores of a tool's name is its server, and no other one.
        let is_told_apart = !name.contains("__") && !name.ends_with('_');
        if !is_name || !is_told_apart {
            return Err(McpConfigError::Name { name: name.into() });
        }
        Ok(Self {
            name: name.into(),
            transport,
            handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT,
            call_timeout: None,
            filter: ToolFilter::default(),
            env_hidden: Vec::new(),
            on_ignored_cancel: OnIgnoredCancel::default(),
        })
    }
}

/// How a server is reached. What may hold secrets is not shown by `Debug`.
#[derive(Clone)]
pub enum McpTransport {
    /// A program that is started, spoken to by its standard input and output.
    Stdio {
        /// The program: a path, or a name that is looked up in `PATH`.
        command: OsString,
        /// Its arguments.
        args: Vec<OsString>,
        /// What is added to its environment.
        env: Vec<(OsString, OsString)>,
    },
    /// A server that runs, reached by streamable HTTP.
    Http {
        /// Its URL.
        url: Arc<str>,
        /// Sent with every request.
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

/// What becomes of a server that goes on with a call that was cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnIgnoredCancel {
    /// It runs on, and the receipt says that the call is out of reach.
    #[default]
    KeepServer,
    /// A server that we started is ended, if no other call needs it: its input is closed, then it gets signals. The
    /// receipt says how it ended, and the server is started anew.
    EndServer,
}

/// Which tools of a server are used: those that an allowing pattern names, less those that a denying one names.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// `None`: all.
    allow: Option<GlobSet>,
    deny: GlobSet,
}

impl ToolFilter {
    /// Reads patterns of the server's own names. Without allowing ones every tool is allowed.
    ///
    /// # Errors
    /// The first pattern that is none.
    pub fn new<S: AsRef<str>>(allow: &[S], deny: &[S]) -> Result<Self, McpConfigError> {
        Ok(Self {
            allow: (!allow.is_empty()).then(|| patterns(allow)).transpose()?,
            deny: patterns(deny)?,
        })
    }

    /// Whether the tool of this name is used.
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

/// Why a server cannot be configured so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpConfigError {
    /// Its tools could not be named.
    #[error(
        "the server name {name:?} is not 1 to {NAME_LEN_MAX} letters, digits, `-` or single `_` between them"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two servers of one name.
    #[error("there are two servers named {name:?}")]
    Duplicate {
        /// The name.
        name: Arc<str>,
    },
    /// A pattern for names of tools is none.
    #[error("not a pattern for names of tools: {detail}")]
    Pattern {
        /// What is wrong with it.
        detail: String,
    },
}

/// What all servers of a system share.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// Where servers start: the working directory.
    pub folder: PathBuf,
    /// Where the pipes to a server are for the moment in which it starts.
    pub pipe_folder: PathBuf,
    /// How the processes of servers are contained.
    pub containment: ContainmentChoice,
}
