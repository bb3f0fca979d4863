//! Causes of a stop. The first cause wins and is never overwritten.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stop_reason::StopReason;

/// The kinds of cause. They are told apart everywhere: a user's cancel is never a deadline.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A person asked for it.
    User,
    /// A newer message took its place.
    Superseded,
    /// A deadline of the run, the turn, the step or the call passed.
    Deadline,
    /// Nothing was heard for too long.
    Inactivity,
    /// Tokens, money or calls ran out.
    Budget,
    /// A guardrail refused.
    Guardrail,
    /// Its parent was stopped.
    Parent,
    /// The process was told to end.
    Shutdown,
    /// Another owner took the stream over.
    LeaseLost,
    /// The one who waited for it went away.
    Disconnect,
    /// It failed; a crash is `failure` with the detail `crash`.
    Failure,
}

impl CauseKind {
    /// The stop reason that this cause gives a turn; `None` for `lease_lost`, whose ending the successor writes.
    pub fn stop_reason(self) -> Option<StopReason> {
        Some(match self {
            Self::User | Self::Superseded | Self::Parent | Self::Disconnect => {
                StopReason::Cancelled
            }
            Self::Deadline | Self::Inactivity => StopReason::Timeout,
            Self::Budget => StopReason::MaxBudgetReached,
            Self::Guardrail => StopReason::Guardrail,
            Self::Shutdown => StopReason::Shutdown,
            Self::Failure => StopReason::Error,
            Self::LeaseLost => return None,
        })
    }

    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Superseded => "superseded",
            Self::Deadline => "deadline",
            Self::Inactivity => "inactivity",
            Self::Budget => "budget",
            Self::Guardrail => "guardrail",
            Self::Parent => "parent",
            Self::Shutdown => "shutdown",
            Self::LeaseLost => "lease_lost",
            Self::Disconnect => "disconnect",
            Self::Failure => "failure",
        }
    }
}

impl fmt::Display for CauseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of cause, its detail, and the one who asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The kind, which decides the stop reason.
    pub kind: CauseKind,
    /// Detail: `ctrl-c`, `sigterm`, `turn deadline of 2s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'static, str>>,
    /// The one who asked: `cli`, a client's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'static, str>>,
}

impl Cause {
    /// A cause of this kind, with neither detail nor asker.
    pub fn new(kind: CauseKind) -> Self {
        Self {
            kind,
            detail: None,
            by: None,
        }
    }

    /// The same, with a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same, with the one who asked.
    #[must_use]
    pub fn by(mut self, by: impl Into<Cow<'static, str>>) -> Self {
        self.by = Some(by.into());
        self
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({detail})", self.kind),
            None => self.kind.fmt(f),
        }
    }
}
