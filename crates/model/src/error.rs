//! What goes wrong with a model.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What callers branch on.
    pub kind: ModelErrorKind,
    /// For people: what failed, with the values needed to act, no secret.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// An error without a hint.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retry_after: None,
        }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, with how long the provider asks to wait.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }
}

/// Kinds of failure. Retry is decided from these, never from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// No connection could be made.
    Connect,
    /// The connection was not made in time.
    ConnectTimeout,
    /// Nothing arrived for too long (first token, between tokens): the provider's own time, not our deadline.
    ProviderTimeout,
    /// 401 or 403.
    Unauthorized,
    /// No such model.
    NotFound,
    /// 429.
    RateLimited,
    /// 5xx, overloaded.
    Unavailable,
    /// The stream was cut.
    Disconnected,
    /// The provider refused the request (400).
    Invalid,
    /// What arrived is not the protocol (HTML, bad JSON).
    Protocol,
    /// The script of a scripted model ran out or is wrong.
    Script,
}

impl ModelErrorKind {
    /// The word used in JSON and in text.
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
            Self::Protocol => "protocol",
            Self::Script => "script",
        }
    }

    /// What an HTTP status says; `None` where it is no failure.
    pub fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            ..300 => return None,
            300..=399 => Self::Protocol,
            401..=403 => Self::Unauthorized,
            404 => Self::NotFound,
            429 => Self::RateLimited,
            // The server gave up waiting, or asks to come again.
            408 | 425 | 500.. => Self::Unavailable,
            _ => Self::Invalid,
        })
    }

    /// Whether the same call may succeed later. Nothing was committed, so repeating it is safe for the conversation.
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
