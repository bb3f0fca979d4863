//! Errors during the start of a system or a session.

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::error_chain;
use allstop_log::{LogError, SessionError};
use allstop_model::{ModelError, ModelErrorKind};
use allstop_nats::ConnectError;
use allstop_scope::NotStarted;

use crate::config::ConfigError;
use crate::system::builtin_script_names;

/// Failure to start a system or a session. Nothing ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// Kind of the failure, which callers can match on.
    pub kind: StartErrorKind,
    /// Readable message, in one line, with the values needed to act.
    pub message: String,
    /// Remedy; `None` if unknown.
    pub hint: Option<String>,
}

/// Kinds of failure to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// The configuration file is wrong.
    Config,
    /// No model is configured.
    NoModel,
    /// The model's name, URL or key is invalid.
    Model,
    /// The script of a scripted model cannot be read or is invalid.
    Script,
    /// A configured folder cannot be used, such as a path that is not a folder.
    Folder,
    /// No session has this id.
    UnknownSession,
    /// Another process has the session open.
    SessionInUse,
    /// A session with this id already exists.
    SessionExists,
    /// The store failed, or a session in it cannot be read.
    Store,
    /// A stop came first.
    Stopped,
    /// A bug in Allstop.
    Bug,
}

impl StartErrorKind {
    /// True if flags or configuration are wrong (exit code 2); false for other failures (exit code 1).
    pub fn is_usage(self) -> bool {
        match self {
            Self::Config
            | Self::NoModel
            | Self::Model
            | Self::Script
            | Self::Folder
            | Self::UnknownSession
            | Self::SessionExists => true,
            Self::SessionInUse | Self::Store | Self::Stopped | Self::Bug => false,
        }
    }

    /// The exit code of the command.
    pub fn exit_code(self) -> u8 {
        if self.is_usage() { 2 } else { 1 }
    }
}

impl StartError {
    pub(crate) fn new(kind: StartErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Error of a start that came too late: all work of this process is being stopped.
    pub fn stopped(refused: &NotStarted) -> Self {
        Self::new(StartErrorKind::Stopped, refused.to_string())
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts the error to the error in the envelope (the JSON result) of a run that did not start.
impl From<StartError> for TurnError {
    fn from(error: StartError) -> Self {
        let kind = match error.kind {
            StartErrorKind::Config
            | StartErrorKind::NoModel
            | StartErrorKind::Model
            | StartErrorKind::Folder => TurnErrorKind::Invalid,
            StartErrorKind::UnknownSession => TurnErrorKind::NotFound,
            StartErrorKind::Script => TurnErrorKind::Script,
            StartErrorKind::SessionInUse => TurnErrorKind::Busy,
            StartErrorKind::SessionExists | StartErrorKind::Store => TurnErrorKind::Store,
            StartErrorKind::Stopped | StartErrorKind::Bug => TurnErrorKind::Bug,
        };
        Self {
            kind,
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::new(StartErrorKind::Config, error.to_string()).hint(error.hint)
    }
}

impl From<ModelError> for StartError {
    fn from(error: ModelError) -> Self {
        let kind = match error.kind {
            ModelErrorKind::Script => StartErrorKind::Script,
            _ => StartErrorKind::Model,
        };
        let script_hint = || {
            let builtin = builtin_script_names();
            format!("name an existing script, `--model script:FILE`, or a built-in one: {builtin}")
        };
        let hint = match kind {
            StartErrorKind::Script => Some(error.hint.unwrap_or_else(script_hint)),
            _ => error.hint,
        };
        Self {
            kind,
            message: error.message,
            hint,
        }
    }
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> Self {
        Self {
            kind: StartErrorKind::Store,
            message: error_chain(&error),
            hint: error.hint(),
        }
    }
}

impl From<ConnectError> for StartError {
    fn from(error: ConnectError) -> Self {
        let hint = match &error {
            ConnectError::Unreachable { .. } => {
                Some("check that the server runs, its address, and the user (--nats-creds FILE)")
            }
            ConnectError::NoAnswer { .. } => Some("check that the NATS server runs, and its port"),
            ConnectError::NoJetStream => Some(
                "start the server with JetStream: nats-server -js; or enable JetStream for the account",
            ),
            ConnectError::ServerTooOld { .. } => Some(
                "install a newer version from https://nats.io/download, and start it: nats-server -js",
            ),
            ConnectError::Replicas { .. } => {
                Some("use --nats-replicas 1 for one server, or start more servers as a cluster")
            }
            ConnectError::Streams(_) => {
                Some("check that most of the servers run and can reach each other; then try again")
            }
            ConnectError::NotBuilt => {
                Some("use a released `allstop`, or build it with `--features nats`")
            }
            ConnectError::Credentials(_) => {
                Some("name readable files: --nats-creds PATH, --nats-ca PATH")
            }
            // The messages of these errors already contain the remedy.
            ConnectError::PayloadTooSmall { .. }
            | ConnectError::OtherLimits(_)
            | ConnectError::Stopping => None,
        };
        Self {
            kind: StartErrorKind::Store,
            message: error.to_string(),
            hint: hint.map(str::to_owned),
        }
    }
}

impl From<SessionError> for StartError {
    fn from(error: SessionError) -> Self {
        let message = error_chain(&error);
        let (kind, hint) = match error {
            SessionError::NotFound(_) => (
                StartErrorKind::UnknownSession,
                "`allstop sessions list` lists all sessions",
            ),
            SessionError::Exists(_) => (
                StartErrorKind::SessionExists,
                "continue it with `--session`, or choose another id",
            ),
            SessionError::InUse { id, .. } => {
                let hint = format!(
                    "`allstop watch {id}` shows it, `allstop stop {id} --extent session` ends it; or start a new session"
                );
                return Self::new(StartErrorKind::SessionInUse, message).hint(hint);
            }
            SessionError::Log(error) | SessionError::Damaged(error) => return error.into(),
            SessionError::Unreadable { .. } | SessionError::Inconsistent { .. } => (
                StartErrorKind::Store,
                "the session was not changed; start a new one",
            ),
            _ => (StartErrorKind::Store, "try again"),
        };
        Self::new(kind, message).hint(hint)
    }
}
