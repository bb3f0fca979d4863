//! Outcomes of a turn and of a run. A run is a sequence of turns. A receipt is the result of a stop: it lists the work
//! that has ended and the work that still runs.

use std::sync::Arc;

use allstop_core::turn::{Conversation, LostTurn};
use allstop_core::{Cause, FinishReason, Receipt, StopReason, TurnNumber, Usage};
use allstop_tools::Denial;

use crate::error::TurnError;
use crate::history::RunHistory;
use crate::oldest_turns::TurnsSummary;

/// Outcome of a turn.
#[derive(Debug, Clone)]
pub struct TurnOutcome {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Reason of the end.
    pub stop_reason: StopReason,
    /// Cause of the end; `None` if the turn was committed.
    pub cause: Option<Cause>,
    /// The final answer; empty unless the turn completed.
    pub output: Arc<str>,
    /// Reason why the model ended the final answer; `None` unless the turn completed.
    pub finish: Option<FinishReason>,
    /// Number of steps.
    pub steps: u32,
    /// Metered usage.
    pub usage: Usage,
    /// Receipt of the stop; `None` if nothing had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// Calls that were denied.
    pub denials: Vec<Denial>,
    /// The failure, if there was one.
    pub error: Option<TurnError>,
    /// Conversation after the turn.
    pub conversation: Arc<Conversation>,
    /// Calls of the turn that may have changed something, if the conversation does not show them, or may not show them
    /// because the ending is not confirmed. The next turn reports them to the model.
    pub lost: Option<LostTurn>,
    /// Summary of older turns in the requests of the turn. The caller decides if it replaces these turns in the
    /// conversation. `None` unless the turn completed.
    pub summary: Option<TurnsSummary>,
    /// True if the store has confirmed whether the ending is written. If false, `conversation` is the conversation
    /// before the turn, and the next start of the session determines the ending from the log.
    pub is_ending_known: bool,
    /// True if the log has the ending.
    pub is_ending_written: bool,
}

/// Outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Turns in order. The last turn contains the reason why the run ended.
    pub turns: Vec<TurnOutcome>,
    /// History with these turns, for the next run.
    pub history: RunHistory,
}
