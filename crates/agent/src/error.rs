//! Failures that end a turn with the stop reason `error`. A denial or a panic of a hook is such a failure, except at
//! two events. If a hook denies the request or the start of a tool call, only this call does not run.

use allstop_core::error_chain;
use allstop_core::turn::IllegalEvent;
use allstop_log::SessionError;
use allstop_model::{ModelError, ModelErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Failure that ended a turn with `error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[error("{message}")]
pub struct TurnError {
    /// Kind of the failure, on which callers branch.
    pub kind: TurnErrorKind,
    /// Message for people, in one line.
    pub message: String,
    /// Remedy, if one is known.
    pub hint: Option<String>,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnErrorKind {
    /// No connection to the provider.
    Connect,
    /// The connection was not established within the provider's timeout.
    ConnectTimeout,
    /// The provider's timeout; never a deadline of Allstop.
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
    /// The conversation is longer than the context window of the model, also in a shorter form.
    ContextLength,
    /// The provider's answer violates its protocol.
    Protocol,
    /// The script of a scripted model is wrong or has run out.
    Script,
    /// The code of the model panicked.
    Panicked,
    /// The store failed: the turn is not in the log, or its presence there is unknown.
    Store,
    /// Another process has the session open. The same command can succeed later.
    Busy,
    /// The operating system has no more threads or descriptors: nothing ran.
    System,
    /// A hook denied or panicked at a point other than the request or the start of a tool call.
    Hook,
    /// The final answer does not match the required JSON schema, also after a second request.
    AnswerMismatch,
    /// Work ended in an unexpected way: a bug of Allstop.
    Bug,
}

impl TurnError {
    /// Failure of a turn whose ending the store has not confirmed. The record of the turn's commit or stop may be in
    /// the log. If the ending is a commit, the decision of the turn stays in the state
    /// [`DecisionState::Committing`](allstop_core::decision::DecisionState::Committing).
    pub fn ending_unknown() -> Self {
        Self {
            kind: TurnErrorKind::Store,
            message: "the store has not confirmed how the turn ended".to_owned(),
            hint: Some("run `allstop sessions show last` once the store answers again".to_owned()),
        }
    }

    /// Failure of a stopped turn whose record of the stop the store has not confirmed, if the conversation is the one before
    /// the turn in any case.
    pub fn stop_unconfirmed() -> Self {
        Self {
            message: "the store has not confirmed the record of the stop; the conversation is unchanged with or without it"
                .to_owned(),
            ..Self::ending_unknown()
        }
    }

    /// Failure that is a bug of Allstop.
    pub fn bug(message: impl Into<String>) -> Self {
        Self {
            kind: TurnErrorKind::Bug,
            message: message.into(),
            hint: Some("this is a bug of Allstop: please report it".to_owned()),
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
            ModelErrorKind::ContextLength => TurnErrorKind::ContextLength,
            ModelErrorKind::Protocol => TurnErrorKind::Protocol,
            ModelErrorKind::Script => TurnErrorKind::Script,
            ModelErrorKind::Panicked => TurnErrorKind::Panicked,
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
            SessionError::Log(error) | SessionError::Damaged(error) => error.hint(),
            _ => None,
        };
        Self {
            kind: TurnErrorKind::Store,
            message: error_chain(&error),
            hint,
        }
    }
}

impl From<IllegalEvent> for TurnError {
    fn from(error: IllegalEvent) -> Self {
        Self::bug(error.to_string())
    }
}
