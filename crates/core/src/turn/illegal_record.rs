//! Errors of records that are not allowed at their position.

use crate::counted::counted;
use crate::ids::{BackgroundId, TurnNumber};
use crate::message::InvalidHistory;
use crate::turn::state::IllegalEvent;

/// Error of a record that is not allowed at its position. The state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalRecord {
    /// The first record does not open the session.
    #[error("the session was not opened")]
    NotOpened,
    /// The session was opened twice.
    #[error("the session was opened twice")]
    OpenedTwice,
    /// A turn started while another turn had no ending.
    #[error("turn {turn} started while turn {open} had no ending")]
    TurnStillOpen {
        /// The turn that starts.
        turn: TurnNumber,
        /// The turn without an ending.
        open: TurnNumber,
    },
    /// A turn started with a number that does not follow the number of the previous turn.
    #[error("turn {turn} started, but the next turn is {expected}")]
    NotTheNextTurn {
        /// Number of the turn.
        turn: TurnNumber,
        /// The expected number.
        expected: TurnNumber,
    },
    /// A record belongs to a turn that is not running.
    #[error("turn {0} is not running")]
    TurnNotOpen(TurnNumber),
    /// An event is not allowed in the turn's state.
    #[error("turn {turn}: {source}")]
    Turn {
        /// The turn.
        turn: TurnNumber,
        /// The error.
        source: IllegalEvent,
    },
    /// A provider would refuse the messages.
    #[error("turn {turn} adds an invalid history: {source}")]
    History {
        /// The turn.
        turn: TurnNumber,
        /// The violation.
        source: InvalidHistory,
    },
    /// The record is only allowed between two turns.
    #[error("turn {0} is running")]
    TurnUnderWay(TurnNumber),
    /// The turn to undo is not the last turn of the conversation, or a summary has replaced its messages.
    #[error("turn {0} is not the last turn of the conversation, and cannot be undone")]
    NotTheLastTurn(TurnNumber),
    /// The dropped messages are not whole turns.
    #[error(
        "the conversation does not begin with {} in {}",
        counted((*turns).into(), "turn", "turns"),
        counted((*messages).into(), "message", "messages")
    )]
    NotWholeTurns {
        /// Number of dropped messages.
        messages: u32,
        /// Number of dropped turns.
        turns: u32,
    },
    /// The id of the background work was used before.
    #[error("the background work {0} was started twice")]
    BackgroundStartedTwice(BackgroundId),
    /// The record requires running background work, but this work does not run.
    #[error("the background work {0} is not running")]
    BackgroundNotRunning(BackgroundId),
}
