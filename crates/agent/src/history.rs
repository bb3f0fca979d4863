//! Destination of a run's turns: the log of a session, or memory only. A run is a sequence of turns.

use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::turn::Conversation;
use allstop_core::{SessionId, TurnNumber};
use allstop_log::{SessionError, SessionWriter};

/// Destination of a run's turns.
#[derive(Debug)]
pub enum RunHistory {
    /// A session in a log. The conversation is computed from the session's records.
    Logged(Box<SessionWriter>),
    /// A conversation in memory, which the caller provides and gets back. Nothing is written.
    Bare {
        /// Id for receipts.
        session_id: SessionId,
        /// The conversation so far.
        conversation: Arc<Conversation>,
        /// The number of the next turn.
        next_turn: TurnNumber,
    },
}

impl RunHistory {
    /// Creates a history in memory.
    pub fn bare(session_id: SessionId, conversation: Arc<Conversation>) -> Self {
        let next_turn = TurnNumber(conversation.turns + 1);
        Self::Bare {
            session_id,
            conversation,
            next_turn,
        }
    }

    /// Id of the session.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Logged(session) => session.id(),
            Self::Bare { session_id, .. } => session_id,
        }
    }

    /// The conversation so far.
    pub fn conversation(&self) -> Arc<Conversation> {
        match self {
            Self::Logged(session) => Arc::clone(session.state().conversation()),
            Self::Bare { conversation, .. } => Arc::clone(conversation),
        }
    }

    /// The number of the next turn.
    pub fn next_turn(&self) -> TurnNumber {
        match self {
            Self::Logged(session) => session.state().next_turn(),
            Self::Bare { next_turn, .. } => *next_turn,
        }
    }

    /// True if records are written to a log.
    pub(crate) fn is_logged(&self) -> bool {
        matches!(self, Self::Logged(_))
    }

    /// If the store has not confirmed an earlier append, determines whether this append was written. The next turn
    /// depends on its records.
    ///
    /// # Cancel safety
    /// Same as [`SessionWriter::settle`].
    pub(crate) async fn settle(&mut self) {
        if let Self::Logged(session) = self
            && let Err(error) = session.settle().await
        {
            // The first append of the turn tries again to settle the earlier append, and reports the failure.
            tracing::warn!(%error, "an earlier append is not confirmed");
        }
    }

    /// Appends records atomically.
    ///
    /// # Cancel safety
    /// Same as [`SessionWriter::append`]: an append may have been written even if its future was dropped. The next
    /// append first determines whether such an append was written.
    pub(crate) async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        match self {
            Self::Logged(session) => session.append(records).await,
            Self::Bare { .. } => Ok(()),
        }
    }

    /// Takes the records of the last append, if it is known that these records were not written.
    pub(crate) fn take_refused_records(&mut self) -> Vec<SessionRecord> {
        match self {
            Self::Logged(session) => session.take_refused_records(),
            Self::Bare { .. } => Vec::new(),
        }
    }

    /// Sets the conversation after the end of a turn.
    pub(crate) fn publish(&mut self, next: Arc<Conversation>) {
        if let Self::Bare {
            conversation,
            next_turn,
            ..
        } = self
        {
            *conversation = next;
            next_turn.0 += 1;
        }
    }
}
