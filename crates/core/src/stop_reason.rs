//! Reasons for the end of a turn, and their exit codes in `allstop run`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason for the end of a turn. Only [`StopReason::Completed`] commits the whole turn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The turn was completed and committed.
    Completed,
    /// A provider, tool or store failure that the turn could not absorb.
    Error,
    /// The turn reached its step limit.
    MaxStepsReached,
    /// The session reached its turn limit.
    MaxTurnsReached,
    /// The budget of tokens, money or calls is used up; amounts are reserved before they are spent.
    MaxBudgetReached,
    /// An input or output guardrail refused.
    Guardrail,
    /// The model repeated the same calls.
    LoopDetected,
    /// A deadline of the turn or the run, or an inactivity limit, passed.
    Timeout,
    /// A stop by a user, a newer message, a parent or a disconnect.
    Cancelled,
    /// The process was asked to exit.
    Shutdown,
}

impl StopReason {
    /// The exit code of `allstop run`. After SIGHUP, the exit code is 129 instead; the binary handles that case.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Error => 1,
            Self::MaxStepsReached => 3,
            Self::MaxTurnsReached => 4,
            Self::MaxBudgetReached => 5,
            Self::Guardrail => 6,
            Self::LoopDetected => 7,
            Self::Timeout => 124,
            Self::Cancelled => 130,
            Self::Shutdown => 143,
        }
    }

    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
            Self::MaxStepsReached => "max_steps_reached",
            Self::MaxTurnsReached => "max_turns_reached",
            Self::MaxBudgetReached => "max_budget_reached",
            Self::Guardrail => "guardrail",
            Self::LoopDetected => "loop_detected",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
