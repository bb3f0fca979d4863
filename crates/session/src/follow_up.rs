//! Policies for a message that arrives while a turn runs.

use std::fmt;
use std::str::FromStr;

use allstop_core::turn::StopPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Policy for a message that arrives while a turn runs, or while other messages wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FollowUp {
    /// The message is refused.
    #[default]
    Reject,
    /// The message waits for its turn.
    Enqueue,
    /// The message stops the running turn and all waiting messages, then starts its own turn. The conversation keeps
    /// their texts and completed steps.
    Interrupt,
    /// Like `interrupt`, but the conversation keeps nothing of the stopped turns.
    Replace,
    /// The message is handed to the running turn, which takes it before its next step. A message that the turn does not
    /// take waits.
    Steer,
}

impl FollowUp {
    /// All policies.
    pub const ALL: [Self; 5] = [
        Self::Reject,
        Self::Enqueue,
        Self::Interrupt,
        Self::Replace,
        Self::Steer,
    ];

    /// Name of the policy in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Enqueue => "enqueue",
            Self::Interrupt => "interrupt",
            Self::Replace => "replace",
            Self::Steer => "steer",
        }
    }

    /// Stop policy for the turns that a message supersedes; `None` if a message with this policy supersedes no turns.
    pub(crate) fn supersedes_with(self) -> Option<StopPolicy> {
        match self {
            Self::Interrupt => Some(StopPolicy::Keep),
            Self::Replace => Some(StopPolicy::Rollback),
            Self::Reject | Self::Enqueue | Self::Steer => None,
        }
    }
}

impl fmt::Display for FollowUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error for a word that is not a follow-up policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown follow-up policy `{0}`: use reject, enqueue, interrupt, replace or steer")]
pub struct InvalidFollowUp(String);

impl FromStr for FollowUp {
    type Err = InvalidFollowUp;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == word);
        found.ok_or_else(|| InvalidFollowUp(word.to_owned()))
    }
}
