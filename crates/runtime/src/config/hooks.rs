//! Configuration of hooks and guardrails that are commands.

use std::time::Duration;

use allstop_agent::GuardrailStage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command_text;
use allstop_core::HumanDuration;

/// Default time limit of a command. A linter or the tests of a small project end within a minute, and a turn that waits
/// longer for a hook seems to hang.
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

/// A command that runs at a moment of a turn or of a session. The environment variable `ALLSTOP_EVENT` contains the
/// event as JSON. Exit code 0 continues, exit code 2 denies with the output as the reason, and any other exit code
/// denies as a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HookConfig {
    /// Moment at which the command runs.
    pub on: HookMoment,
    /// The command, as passed to `sh -c`, in the working directory.
    #[serde(deserialize_with = "command_text::required")]
    pub command: String,
    /// Time limit of the command; 1m by default. A command that exceeds the limit is stopped and counts as a denial.
    pub timeout: Option<HumanDuration>,
}

/// A moment of a turn or of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookMoment {
    /// Before the first model call; a denial ends the turn.
    TurnStart,
    /// Before a model call; a denial ends the turn.
    ModelStart,
    /// After a model call; a denial ends the turn.
    ModelEnd,
    /// Before a tool call; a denied call does not run, and the turn continues.
    ToolStart,
    /// After a tool call; a denial ends the turn.
    ToolEnd,
    /// After the end of the turn is decided, unless a stop covers the run; a denial changes nothing.
    TurnEnd,
    /// After a session was opened; a denial changes nothing.
    SessionStart,
    /// After a session was closed; a denial changes nothing.
    SessionEnd,
    /// After a turn was stopped, with its receipt; a denial changes nothing.
    Stop,
    /// After a turn failed; a denial changes nothing.
    Error,
}

impl HookMoment {
    /// Name of the moment in the configuration and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TurnStart => "turn_start",
            Self::ModelStart => "model_start",
            Self::ModelEnd => "model_end",
            Self::ToolStart => "tool_start",
            Self::ToolEnd => "tool_end",
            Self::TurnEnd => "turn_end",
            Self::SessionStart => "session_start",
            Self::SessionEnd => "session_end",
            Self::Stop => "stop",
            Self::Error => "error",
        }
    }
}

/// A command that checks the input or the output of a turn. The environment variable `ALLSTOP_EVENT` contains the text
/// as JSON. Exit code 0 passes. Any other exit code refuses with the output as the reason, and ends the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GuardrailConfig {
    /// Text that the command checks.
    pub on: GuardrailStage,
    /// The command, as passed to `sh -c`, in the working directory.
    #[serde(deserialize_with = "command_text::required")]
    pub command: String,
    /// Time limit of the command; 1m by default. A command that exceeds the limit is stopped and counts as a refusal.
    pub timeout: Option<HumanDuration>,
}
