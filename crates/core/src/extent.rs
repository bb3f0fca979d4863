//! Extents of a stop. The extent is the part of the running work that the stop covers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Extent of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// One call; its turn continues.
    Call,
    /// The running turn, but not the background work of its session.
    Turn,
    /// The running turn and all background work.
    TurnAndBackground,
    /// The whole session. After the stop, a new message ends before its turn starts.
    Session,
    /// A sub-agent and everything that it started.
    Subtree,
    /// Everything that this process runs.
    Process,
}

impl Extent {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Turn => "turn",
            Self::TurnAndBackground => "turn_and_background",
            Self::Session => "session",
            Self::Subtree => "subtree",
            Self::Process => "process",
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
