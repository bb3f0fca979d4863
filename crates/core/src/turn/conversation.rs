//! The committed conversation of a session: immutable, shared, and replaced as a whole.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::TurnNumber;
use crate::message::{InvalidHistory, Message, check_history};
use crate::usage::Usage;

/// Committed part of a session, shared in an `Arc`. Each commit creates a new `Conversation`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Every message, shared with drafts, requests and records.
    pub messages: Vec<Arc<Message>>,
    /// Number of turns: committed turns, and stopped turns with kept messages. Compacted turns count too.
    pub turns: u32,
    /// The start of each turn whose messages are all in `messages` (not replaced by a summary), in the order of the
    /// turns.
    pub spans: Vec<TurnSpan>,
    /// Usage of the turns: the committed total.
    pub usage: Usage,
}

/// Position of one turn in a conversation. The turn ends at the start of the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSpan {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Index of the first message of the turn.
    pub start: u32,
}

impl Conversation {
    /// Adds a turn. If this is the only handle of the conversation, moves the existing messages. Otherwise clones the
    /// pointers to them.
    pub(crate) fn with_turn<I>(
        self: Arc<Self>,
        turn: TurnNumber,
        messages: I,
        usage: Usage,
    ) -> Arc<Self>
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
                spans: shared.spans.clone(),
                usage: shared.usage,
            }
        });
        let start = next.messages.len() as u32;
        next.spans.push(TurnSpan { turn, start });
        next.messages.extend(messages);
        next.turns = next.turns.saturating_add(1);
        next.usage += usage;
        Arc::new(next)
    }

    /// Removes the last turn, if its messages are all in `messages` (not replaced by a summary).
    pub(crate) fn without_last_turn(self: Arc<Self>) -> Arc<Self> {
        let mut next = Arc::unwrap_or_clone(self);
        if let Some(last) = next.spans.pop() {
            next.messages.truncate(last.start as usize);
            next.turns = next.turns.saturating_sub(1);
        }
        Arc::new(next)
    }

    /// Replaces the first messages with a summary. `None` if the dropped messages are not whole turns.
    pub(crate) fn compacted(
        &self,
        messages_dropped: u32,
        turns_dropped: u32,
        summary: Option<&Arc<str>>,
    ) -> Option<Arc<Self>> {
        let dropped = turns_dropped as usize;
        let end = match self.spans.get(dropped) {
            Some(next) => next.start,
            None => self.messages.len() as u32,
        };
        if dropped == 0 || dropped > self.spans.len() || end != messages_dropped {
            return None;
        }
        let mut messages = Vec::with_capacity(self.messages.len() - end as usize + 1);
        let text = summary.cloned();
        messages.extend(text.map(|text| Arc::new(Message::Summary { text })));
        let shift = end - messages.len() as u32;
        messages.extend_from_slice(&self.messages[end as usize..]);
        let spans = self.spans.iter().skip(dropped);
        let spans = spans.map(|span| TurnSpan {
            start: span.start - shift,
            ..*span
        });
        Some(Arc::new(Self {
            spans: spans.collect(),
            messages,
            turns: self.turns,
            usage: self.usage,
        }))
    }

    /// Checks that a provider would accept the messages: each tool call must have one result.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn check(&self) -> Result<(), InvalidHistory> {
        check_history(self.messages.iter().map(AsRef::as_ref))
    }
}
