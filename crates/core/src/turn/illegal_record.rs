//! Errors of a record that cannot stand where it is.

use crate::ids::{BackgroundId, TurnNumber};
use crate::message::InvalidHistory;
use crate::turn::state::IllegalEvent;

/// A record that cannot stand where it is. The state is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalRecord {
    /// The first record is not the opening.
    #[error("the session was not opened")]
    NotOpened,
    /// A second opening.
    #[error("the session was opened before")]
    OpenedTwice,
    /// A turn that starts while another has no ending.
    #[error("turn {turn} started while turn {open} had no ending")]
    TurnStillOpen {
        /// The one that starts.
        turn: TurnNumber,
        /// The one without an ending.
        open: TurnNumber,
    },
    /// A turn with a number that is not the next.
    #[error("turn {turn} started where {expected} is next")]
    NotTheNextTurn {
        /// Its number.
        turn: TurnNumber,
        /// The next one.
        expected: TurnNumber,
    },
    /// Something of a turn that is not under way.
    #[error("turn {0} is not under way")]
    TurnNotOpen(TurnNumber),
    /// Something that cannot happen where the turn is.
    #[error("turn {turn}: {source}")]
    Turn {
        /// The turn.
        turn: TurnNumber,
        /// The error.
        source: IllegalEvent,
    },
    /// Messages that no provider would take.
    #[error("turn {turn} adds an invalid history: {source}")]
    History {
        /// The turn.
        turn: TurnNumber,
        /// Which.
        source: InvalidHistory,
    },
    /// Something that belongs between two turns.
    #[error("turn {0} is under way")]
    TurnUnderWay(TurnNumber),
    /// A turn taken back that is not the conversation's last, or of which only a summary is left.
    #[error("turn {0} is not the last of the conversation, and cannot be taken back")]
    NotTheLastTurn(TurnNumber),
    /// Messages dropped that are not whole turns.
    #[error("{messages} messages are not the first {turns} turns of the conversation")]
    NotWholeTurns {
        /// The messages.
        messages: u32,
        /// The turns.
        turns: u32,
    },
    /// Background work with an id that was used before.
    #[error("the background work {0} was started before")]
    BackgroundStartedTwice(BackgroundId),
    /// Something of background work that does not run.
    #[error("the background work {0} does not run")]
    BackgroundNotRunning(BackgroundId),
}
