//! Where a run's turns go: a session's log, or memory alone.

use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::turn::Conversation;
use allstop_core::{SessionId, TurnNumber};
use allstop_log::{SessionError, SessionStream};

/// Where a run's turns go.
#[derive(Debug)]
pub enum History {
    /// A session in a log: the conversation is the fold of its records.
    Logged(Box<SessionStream>),
    /// A conversation that the caller brings and takes back: nothing is written.
    Bare {
        /// Its name in receipts.
        session_id: SessionId,
        /// What was said before.
        conversation: Arc<Conversation>,
        /// The number of the next turn.
        next_turn: TurnNumber,
    },
}

impl History {
    /// A conversation of the caller's own.
    pub fn bare(session_id: SessionId, conversation: Arc<Conversation>) -> Self {
        let next_turn = TurnNumber(conversation.turns + 1);
        Self::Bare {
            session_id,
            conversation,
            next_turn,
        }
    }

    /// The session.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Logged(session) => session.id(),
            Self::Bare { session_id, .. } => session_id,
        }
    }

    /// What was said so far.
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

    /// Whether records are kept.
    pub(crate) fn is_logged(&self) -> bool {
        matches!(self, Self::Logged(_))
    }

    /// Asks again for what the store has not answered: a turn stands on what was written before it.
    ///
    /// # Cancel safety
    /// As [`SessionStream::settle`].
    pub(crate) async fn settle(&mut self) {
        if let Self::Logged(session) = self
            && let Err(error) = session.settle().await
        {
            // The turn's own append asks once more, and fails as this did.
            tracing::warn!(%error, "an earlier append is not confirmed");
        }
    }

    /// Appends records as one.
    ///
    /// # Cancel safety
    /// As [`SessionStream::append`]: a dropped append may have happened, and the next one settles it first.
    pub(crate) async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        match self {
            Self::Logged(session) => session.append(records).await,
            Self::Bare { .. } => Ok(()),
        }
    }

    /// The records of the last append, if it is known that they are not written.
    pub(crate) fn take_unwritten(&mut self) -> Vec<SessionRecord> {
        match self {
            Self::Logged(session) => session.take_unwritten(),
            Self::Bare { .. } => Vec::new(),
        }
    }

    /// The turn has its ending, and `next` is what the conversation is now.
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
