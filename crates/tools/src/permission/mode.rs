//! Permission modes, which determine which calls a session runs without a question.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Determines the calls that a session runs without a question, unless a rule decides otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// Calls that only read run. All others are denied, even if rules or earlier answers allow them.
    Plan,
    /// Calls that only read run. All others ask.
    #[default]
    Ask,
    /// Like `ask`, but `edit` and `write` run. Both change only files in the working directory.
    AcceptEdits,
}

impl PermissionMode {
    /// All modes, in the order in which a key press cycles through them.
    pub const ALL: [Self; 3] = [Self::Ask, Self::AcceptEdits, Self::Plan];

    /// Name of the mode in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
        }
    }

    /// Returns the mode after this one.
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

/// The mode of one session. A person may change the mode while a turn runs; the new mode applies from the next call on.
/// Clones share the mode.
#[derive(Debug, Clone, Default)]
pub struct ModeSwitch(Arc<Mutex<PermissionMode>>);

impl ModeSwitch {
    /// Creates a switch in this mode.
    pub fn new(mode: PermissionMode) -> Self {
        Self(Arc::new(Mutex::new(mode)))
    }

    /// Returns the current mode.
    pub fn get(&self) -> PermissionMode {
        *self.0.lock()
    }

    /// Sets the mode.
    pub fn set(&self, mode: PermissionMode) {
        *self.0.lock() = mode;
    }
}
