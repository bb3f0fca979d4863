//! What a turn and a run came to.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_core::{CallId, Cause, FinishReason, Receipt, StopReason, TurnNumber, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TurnError;
use crate::history::History;

/// A call that did not run because somebody said no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    #[schemars(with = "String")]
    pub tool: Arc<str>,
    /// Who said no, and why.
    pub reason: String,
}

/// What a turn came to.
#[derive(Debug, Clone)]
pub struct TurnOutcome {
    /// Its number.
    pub turn: TurnNumber,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The cause, of any ending but a commit.
    pub cause: Option<Cause>,
    /// The final answer; empty unless the turn completed.
    pub output: Arc<str>,
    /// How the model ended that answer; `None` unless the turn completed.
    pub finish: Option<FinishReason>,
    /// How many steps it took.
    pub steps: u32,
    /// The metered usage.
    pub usage: Usage,
    /// What stopped and what did not; none where nothing had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// Calls that somebody said no to.
    pub denials: Vec<Denial>,
    /// What failed.
    pub error: Option<TurnError>,
    /// What the conversation is now.
    pub conversation: Arc<Conversation>,
    /// Whether the store has said that the ending is written, or that it is not. Else `conversation` is what it was
    /// before the turn, and the next start of the session tells the rest.
    pub is_ending_known: bool,
}

/// What a run came to.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its turns, in order. The last one says why the run ended.
    pub turns: Vec<TurnOutcome>,
    /// Where they went, to go on with.
    pub history: History,
}
