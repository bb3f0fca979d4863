//! Causes of a stop. The first cause wins and is never overwritten.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stop_reason::StopReason;

/// Kinds of cause. All code distinguishes them: a user's cancel is never reported as a deadline.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A user requested the stop.
    User,
    /// A newer message replaced the running message.
    Superseded,
    /// A deadline of the run, the turn, the step or the call passed.
    Deadline,
    /// No activity for longer than the inactivity limit.
    Inactivity,
    /// The budget of tokens, money or calls ran out.
    Budget,
    /// A guardrail refused the input or the output.
    Guardrail,
    /// The parent of the work was stopped.
    Parent,
    /// The process was asked to exit.
    Shutdown,
    /// Another process took over the session's stream.
    LeaseLost,
    /// The client that waited for the work disconnected.
    Disconnect,
    /// The work failed; a crash is `failure` with the detail `crash`.
    Failure,
}

impl CauseKind {
    /// Stop reason of a turn that ends with this cause. `None` for the cause `lease_lost`, because the process that
    /// took over the session writes the ending of the turn.
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

/// Detail of the cause in an ending that recovery writes.
pub const CRASH: &str = "crash";

/// Cause of a stop: its kind, a detail, and the requester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The kind, which decides the stop reason.
    pub kind: CauseKind,
    /// Detail: `ctrl-c`, `sigterm`, `turn deadline of 2s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'static, str>>,
    /// The requester: `cli`, or a client's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'static, str>>,
}

impl Cause {
    /// A cause of this kind, without detail and requester.
    pub fn new(kind: CauseKind) -> Self {
        Self {
            kind,
            detail: None,
            by: None,
        }
    }

    /// Returns the cause with a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Returns the cause with a requester.
    #[must_use]
    pub fn by(mut self, by: impl Into<Cow<'static, str>>) -> Self {
        self.by = Some(by.into());
        self
    }

    /// Describes the stop for people, as in `stopped by you (Ctrl-C)`.
    pub fn stopped_by(&self) -> String {
        let detail = self.detail.as_deref();
        let because = |otherwise: &str| format!("stopped because {}", detail.unwrap_or(otherwise));
        let in_brackets = detail.map_or(String::new(), |detail| format!(" ({detail})"));
        match self.kind {
            CauseKind::User => {
                let who = match self.by.as_deref() {
                    None | Some("cli") => "you",
                    Some(by) => by,
                };
                match detail {
                    Some("ctrl-c") => format!("stopped by {who} (Ctrl-C)"),
                    _ => format!("stopped by {who}{in_brackets}"),
                }
            }
            CauseKind::Superseded => "stopped by your next message".to_owned(),
            CauseKind::Deadline => format!("stopped by a time limit{in_brackets}"),
            CauseKind::Inactivity => format!("stopped for inactivity{in_brackets}"),
            CauseKind::Budget => format!("stopped by a limit{in_brackets}"),
            CauseKind::Guardrail => format!("stopped by a guardrail{in_brackets}"),
            CauseKind::Parent => because("its parent was stopped"),
            CauseKind::Shutdown => match detail {
                Some(signal) if signal.starts_with("sig") => {
                    format!("stopped by {}", signal.to_uppercase())
                }
                _ => because("the process ends"),
            },
            CauseKind::LeaseLost => because("another process took it over"),
            CauseKind::Disconnect => because("its client disconnected"),
            CauseKind::Failure => format!("stopped by a failure{in_brackets}"),
        }
    }

    /// Stop reason of a turn that ends with this cause. The cause `lease_lost` gives the stop reason `error`, because
    /// the turn could not continue. The process that took over the session writes the ending of the turn.
    pub fn stop_reason(&self) -> StopReason {
        self.kind.stop_reason().unwrap_or(StopReason::Error)
    }
}

impl From<CauseKind> for Cause {
    fn from(kind: CauseKind) -> Self {
        Self::new(kind)
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
