//! What a session has agreed on so far: immutable, shared, replaced as a whole.

use std::sync::Arc;

use crate::message::{InvalidHistory, Message, check_history};
use crate::usage::Usage;

/// The committed part of a session. It lives behind an `Arc` and never changes; a commit makes the next one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Every message, shared with drafts, requests and records.
    pub messages: Vec<Arc<Message>>,
    /// How many turns it holds: committed ones, and stopped ones of which something was kept.
    pub turns: u32,
    /// What its turns used: the committed ledger.
    pub usage: Usage,
}

impl Conversation {
    /// The conversation with one more turn. Its messages are moved if nobody else holds it, else their pointers are
    /// cloned.
    pub(crate) fn with_turn<I>(self: Arc<Self>, messages: I, usage: Usage) -> Arc<Self>
    where
        I: IntoIterator<Item = Arc<Message>>,
        I::IntoIter: ExactSizeIterator,
    {
        let messages = messages.into_iter();
        let mut next = Arc::try_unwrap(self).unwrap_or_else(|shared| {
            let mut all = Vec::with_capacity(shared.messages.len() + messages.len());
            all.extend_from_slice(&shared.messages);
            Self {
                messages: all,
                turns: shared.turns,
                usage: shared.usage,
            }
        });
        next.messages.extend(messages);
        next.turns = next.turns.saturating_add(1);
        next.usage += usage;
        Arc::new(next)
    }

    /// Checks that a provider would take it: one result for each tool call.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), InvalidHistory> {
        check_history(self.messages.iter().map(AsRef::as_ref))
    }
}
