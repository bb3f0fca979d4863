//! Modes: the calls that a session runs without a question.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The calls that a session runs without a question, where no rule says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// Calls that only read run. All others are denied, whatever rules and earlier answers allow.
    Plan,
    /// Calls that only read run. All others ask.
    #[default]
    Ask,
    /// As `ask`, but `edit` and `write` run: they change files in the working directory, and nothing else.
    AcceptEdits,
}

impl PermissionMode {
    /// All modes, in the order in which a key goes through them.
    pub const ALL: [Self; 3] = [Self::Ask, Self::AcceptEdits, Self::Plan];

    /// Name of the mode in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
        }
    }

    /// The mode after this one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Ask => Self::AcceptEdits,
            Self::AcceptEdits => Self::Plan,
            Self::Plan => Self::Ask,
        }
    }
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error for a word that is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode `{0}`: use plan, ask or accept-edits")]
pub struct InvalidMode(String);

impl FromStr for PermissionMode {
    type Err = InvalidMode;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let mut modes = Self::ALL.into_iter();
        let mode = modes.find(|mode| mode.as_str() == word);
        mode.ok_or_else(|| InvalidMode(word.to_owned()))
    }
}

/// The mode of one session, which a person may change while a turn runs: the next call is decided by the new mode.
/// Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ModeSwitch(Arc<Mutex<PermissionMode>>);

impl ModeSwitch {
    /// A switch in this position.
    pub fn new(mode: PermissionMode) -> Self {
        Self(Arc::new(Mutex::new(mode)))
    }

    /// The mode.
    pub fn get(&self) -> PermissionMode {
        *self.0.lock()
    }

    /// Sets the mode.
    pub fn set(&self, mode: PermissionMode) {
        *self.0.lock() = mode;
    }
}
