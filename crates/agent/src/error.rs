//! Failures that a turn could not absorb.

use allstop_core::turn::IllegalEvent;
use allstop_log::SessionError;
use allstop_model::{ModelError, ModelErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a turn ended with `error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[error("{message}")]
pub struct TurnError {
    /// What callers branch on.
    pub kind: TurnErrorKind,
    /// For people, in one line.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnErrorKind {
    /// No connection to the provider.
    Connect,
    /// The connection was not made in the provider's own time.
    ConnectTimeout,
    /// The provider's own timeout; never our deadline.
    ProviderTimeout,
    /// The provider refused the key.
    Unauthorized,
    /// The provider has no such model.
    NotFound,
    /// The provider limits the rate.
    RateLimited,
    /// The provider is overloaded or broken.
    Unavailable,
    /// The provider's stream was cut.
    Disconnected,
    /// The provider refused the request.
    Invalid,
    /// What the provider sent is not its protocol.
    Protocol,
    /// The script of a scripted model is wrong or has run out.
    Script,
    /// The store failed: the turn is not in the log, or it is not known whether it is.
    Store,
    /// The operating system has no more threads or descriptors to give: nothing ran.
    System,
    /// A hook or guardrail failed where it may not.
    Hook,
    /// Work ended in a way it should not have: a bug of ours.
    Bug,
}

impl TurnError {
    /// The failure of a turn whose ending the store has not confirmed: a commit, as long as
    /// [`DecisionState::Committing`](allstop_core::decision::DecisionState::Committing) is all that is known, or the
    /// ending of a stopped turn. It may be in the log, or not.
    pub fn ending_unknown() -> Self {
        Self {
            kind: TurnErrorKind::Store,
            message: "the store has not confirmed the turn's ending, which is not known yet"
                .to_owned(),
            hint: Some("`allstop sessions show` tells, once the store answers again".to_owned()),
        }
    }
}

impl From<ModelError> for TurnError {
    fn from(error: ModelError) -> Self {
        let kind = match error.kind {
            ModelErrorKind::Connect => TurnErrorKind::Connect,
            ModelErrorKind::ConnectTimeout => TurnErrorKind::ConnectTimeout,
            ModelErrorKind::ProviderTimeout => TurnErrorKind::ProviderTimeout,
            ModelErrorKind::Unauthorized => TurnErrorKind::Unauthorized,
            ModelErrorKind::NotFound => TurnErrorKind::NotFound,
            ModelErrorKind::RateLimited => TurnErrorKind::RateLimited,
            ModelErrorKind::Unavailable => TurnErrorKind::Unavailable,
            ModelErrorKind::Disconnected => TurnErrorKind::Disconnected,
            ModelErrorKind::Invalid => TurnErrorKind::Invalid,
            ModelErrorKind::Protocol => TurnErrorKind::Protocol,
            ModelErrorKind::Script => TurnErrorKind::Script,
        };
        Self {
            kind,
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<SessionError> for TurnError {
    fn from(error: SessionError) -> Self {
        let hint = match &error {
            SessionError::Log(error) => error.hint().map(str::to_owned),
            _ => None,
        };
        let mut last = error.to_string();
        let mut message = last.clone();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let said = cause.to_string();
            // Some say again what they were caused by.
            if !said.ends_with(&last) {
                message = format!("{message}: {said}");
            }
            last = said;
            source = cause.source();
        }
        Self {
            kind: TurnErrorKind::Store,
            message,
            hint,
        }
    }
}

impl From<IllegalEvent> for TurnError {
    fn from(error: IllegalEvent) -> Self {
        Self {
            kind: TurnErrorKind::Bug,
            message: error.to_string(),
            hint: Some("this is a bug of Allstop: please report it".to_owned()),
        }
    }
}
