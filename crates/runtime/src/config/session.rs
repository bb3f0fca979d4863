//! The section `[session]`: interactive sessions.

use std::time::Duration;

use allstop_core::HumanDuration;
use allstop_session::{CompactionLimits, FollowUp, OnBackgroundEnd, SessionOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Interactive sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SessionConfig {
    /// Effect of a message that is sent while a turn runs. The default is `steer` in a chat, and `interrupt` in a server.
    pub follow_up: Option<FollowUp>,
    /// Report of ended background work to the model: `note` (the default) reports with the next message, `wake`
    /// immediately in a new turn.
    pub on_background_end: Option<OnBackgroundEnd>,
    /// Conversation length in tokens above which older turns are summarised before the next turn. The default is three
    /// quarters of `context_window` of the model. If the window is unknown, older turns are summarised on request, and
    /// after the provider has refused the conversation as too long.
    pub compact_above_tokens: Option<u64>,
    /// Number of newest turns that a summary leaves unchanged; 4 by default.
    pub compact_keeps_turns: Option<u32>,
    /// Maximum time that a permission question stays open while no client is connected; 1m by default.
    pub unanswered_after: Option<HumanDuration>,
}

impl SessionConfig {
    /// Number of newest turns that a summary leaves unchanged.
    pub(super) fn turns_kept(&self) -> u32 {
        let default = CompactionLimits::default().turns_kept;
        self.compact_keeps_turns.unwrap_or(default)
    }

    /// Options of sessions whose conversations are compacted above this length, in tokens.
    pub(super) fn options(&self, compact_above_tokens: Option<u64>) -> SessionOptions {
        let plain = SessionOptions::default();
        let unanswered_after = self.unanswered_after.map(Duration::from);
        let unanswered_after = unanswered_after.or(plain.unanswered_after);
        plain
            .follow_up(self.follow_up.unwrap_or(FollowUp::Interrupt))
            .on_background_end(self.on_background_end.unwrap_or_default())
            .compaction(compact_above_tokens.map(|tokens_max| {
                CompactionLimits::default()
                    .tokens_max(tokens_max)
                    .turns_kept(self.turns_kept())
            }))
            .unanswered_after(unanswered_after)
    }
}
