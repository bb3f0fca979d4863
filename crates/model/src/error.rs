//! What goes wrong with a model.

use std::time::Duration;

/// Why a model call failed.
#[derive(Debug, Clone, thiserror::Error)]
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

/// Kinds of failure. Retry is decided from these, never from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
