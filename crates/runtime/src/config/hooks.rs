//! Hooks and guardrails that are commands, as the configuration names them.

use std::time::Duration;

use allstop_agent::Stage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allstop_core::WrittenDuration;

/// How long a command may take where the configuration says nothing: a linter or a test of a small project is through
/// in a minute, and a turn that waits longer for a hook looks hung.
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

/// A command that hears of a moment of a turn or of a session. The event is in the environment variable `ALLSTOP_EVENT`, as JSON. Exit
/// code 0 goes on, 2 denies with the output as the reason, and anything else denies as a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// Of which moment.
    pub on: HookMoment,
    /// The command, as given to `sh -c`, in the working directory.
    pub command: String,
    /// How long it may take; 1m if not given. Then it is stopped, and has denied.
    pub timeout: Option<WrittenDuration>,
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
    /// Before a tool call; a denied call does not run, and the turn goes on.
    ToolStart,
    /// After a tool call; a denial ends the turn.
    ToolEnd,
    /// After the turn has its ending, unless a stop covers the run; a denial changes nothing any more.
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
    /// The word used in the configuration and in events.
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

/// A command that looks at what goes in or what comes out. The text is in the environment variable `ALLSTOP_EVENT`, as
/// JSON. Exit code 0 passes; anything else refuses, with the output as the reason, and ends the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardrailConfig {
    /// At which.
    pub on: GuardrailStage,
    /// The command, as given to `sh -c`, in the working directory.
    pub command: String,
    /// How long it may take; 1m if not given. Then it is stopped, and has refused.
    pub timeout: Option<WrittenDuration>,
}

/// Where a guardrail looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardrailStage {
    /// The user's message, before the first model call.
    Input,
    /// The final answer, before the commit.
    Output,
}

impl From<GuardrailStage> for Stage {
    fn from(stage: GuardrailStage) -> Self {
        match stage {
            GuardrailStage::Input => Self::Input,
            GuardrailStage::Output => Self::Output,
        }
    }
}
