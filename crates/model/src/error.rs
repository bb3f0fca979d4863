//! Errors of a model call.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Error of a model call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Kind of failure. The program makes its decisions by this kind.
    pub kind: ModelErrorKind,
    /// Text for people. It describes the failure and contains the values that a user needs in order to act. It contains
    /// no secrets.
    pub message: String,
    /// A remedy, if known.
    pub hint: Option<String>,
    /// Time that the provider asks the caller to wait.
    pub retry_after: Option<Duration>,
    /// Code of the error in the answer of the provider, such as `rate_limit_exceeded`. It is for display: decisions need
    /// the kind.
    pub code: Option<String>,
}

impl ModelError {
    /// An error without a hint.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retry_after: None,
            code: None,
        }
    }

    /// Returns the error with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the error with the time that the provider asks the caller to wait.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Returns the error with the code of the provider.
    #[must_use]
    pub fn with_code(mut self, code: Option<String>) -> Self {
        self.code = code;
        self
    }
}

/// Kinds of failure. Retries are decided by kind, never by text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// The connection failed.
    Connect,
    /// The connection was not made within its time limit.
    ConnectTimeout,
    /// No token arrived in time (the first, or the next one): a limit of the provider, not the user's deadline.
    ProviderTimeout,
    /// HTTP 401, 402 or 403.
    Unauthorized,
    /// The model does not exist.
    NotFound,
    /// HTTP 429.
    RateLimited,
    /// HTTP 5xx, or the provider is overloaded.
    Unavailable,
    /// The stream was cut off.
    Disconnected,
    /// The provider refused the request (HTTP 400).
    Invalid,
    /// The provider refused the request because it is longer than the context window of the model.
    ContextLength,
    /// The response does not follow the protocol (HTML, invalid JSON).
    Protocol,
    /// The script of a scripted model is used up or invalid.
    Script,
    /// The code of the model panicked.
    Panicked,
}

impl ModelErrorKind {
    /// The name of the kind in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::ProviderTimeout => "provider_timeout",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Disconnected => "disconnected",
            Self::Invalid => "invalid",
            Self::ContextLength => "context_length",
            Self::Protocol => "protocol",
            Self::Script => "script",
            Self::Panicked => "panicked",
        }
    }

    /// The kind of failure for an HTTP status; `None` if the status means success.
    pub fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            ..300 => return None,
            300..=399 => Self::Protocol,
            401..=403 => Self::Unauthorized,
            404 => Self::NotFound,
            429 => Self::RateLimited,
            // A timeout of the server, or a request of the server to try again.
            408 | 425 | 500.. => Self::Unavailable,
            _ => Self::Invalid,
        })
    }

    /// True if the same call may succeed later. The failed call has committed nothing, so a retry cannot damage the
    /// conversation.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Connect
                | Self::ConnectTimeout
                | Self::ProviderTimeout
                | Self::RateLimited
                | Self::Unavailable
                | Self::Disconnected
        )
    }
}
