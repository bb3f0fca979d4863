//! The section of sessions that a person talks to.

use std::time::Duration;

use allstop_core::WrittenDuration;
use allstop_session::{Compaction, FollowUp, OnBackgroundEnd, SessionOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sessions that a person talks to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// What a message does that is sent while a turn runs; `interrupt` if not given.
    pub follow_up: Option<FollowUp>,
    /// How the model hears of background work that has ended: `note`, with the next message, if not given; or `wake`, at
    /// once, in a turn of its own.
    pub on_background_end: Option<OnBackgroundEnd>,
    /// A conversation of more tokens is summed up before its next turn; only when asked if not given.
    pub compact_above_tokens: Option<u64>,
    /// So many of the newest turns stay word by word then; 4 if not given.
    pub compact_keeps_turns: Option<u32>,
    /// How long a permission question stays open when nobody is there to answer; 1m if not given.
    pub unanswered_after: Option<WrittenDuration>,
}

impl SessionConfig {
    /// The options of a session, for a person.
    pub(crate) fn options(&self) -> SessionOptions {
        let plain = SessionOptions::default();
        let kept = Compaction::default().turns_kept;
        SessionOptions {
            follow_up: self.follow_up.unwrap_or(FollowUp::Interrupt),
            on_background_end: self.on_background_end.unwrap_or_default(),
            compaction: self.compact_above_tokens.map(|tokens_max| Compaction {
                tokens_max,
                turns_kept: self.compact_keeps_turns.unwrap_or(kept),
            }),
            unanswered_after: self
                .unanswered_after
                .map(Duration::from)
                .or(plain.unanswered_after),
            ..plain
        }
    }
}
