//! Selects the reply to a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use allstop_core::Message;

use super::{Order, Reply};
use crate::ModelError;

#[derive(Debug)]
pub(super) struct Script {
    order: Order,
    turns: Vec<Turn>,
    line: Vec<Arc<Slot>>,
    /// Index of the next reply of the main list, for [`Order::Calls`].
    next: AtomicUsize,
}

/// Replies to user messages that contain a text.
#[derive(Debug)]
pub(super) struct Turn {
    when: Option<String>,
    replies: Vec<Arc<Slot>>,
}

/// A reply and the number of its failures so far.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) reply: Reply,
    failed: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) slot: Arc<Slot>,
    /// Number of assistant messages in the request: it makes the ids of the reply's calls unique in the conversation.
    pub(super) assistants: usize,
}

impl Turn {
    pub(super) fn new(when: Option<String>, replies: Vec<Reply>) -> Self {
        Self {
            when,
            replies: slots(replies),
        }
    }

    fn answers(&self, text: &str) -> bool {
        self.when.as_deref().is_none_or(|when| text.contains(when))
    }
}

impl Slot {
    /// The error of this request, if it fails; counts the failure.
    pub(super) fn error_at_start(&self) -> Option<ModelError> {
        let (error, times) = self.reply.error.as_ref()?;
        let fails = match times {
            None => true,
            Some(times) => self
                .failed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                    (n < *times).then_some(n + 1)
                })
                .is_ok(),
        };
        fails.then(|| error.clone())
    }
}

impl Script {
    pub(super) fn new(order: Order, turns: Vec<Turn>, line: Vec<Reply>) -> Self {
        Self {
            order,
            turns,
            line: slots(line),
            next: AtomicUsize::new(0),
        }
    }

    /// The reply to a request with this conversation, or the reason why there is none.
    pub(super) fn choose(&self, messages: &[Arc<Message>]) -> Result<Chosen, String> {
        let place = self.place(messages);
        let (replies, at, which) = match place.turn {
            Some(turn) => (&turn.replies, place.step, "turn"),
            None if self.order == Order::Calls => (
                &self.line,
                self.next.fetch_add(1, Ordering::Relaxed),
                "script",
            ),
            None => (&self.line, place.on_line, "script"),
        };
        let slot = replies.get(at).ok_or_else(|| {
            format!(
                "the {which} has {} replies, and this request needs number {}",
                replies.len(),
                at + 1
            )
        })?;
        Ok(Chosen {
            slot: Arc::clone(slot),
            assistants: place.assistants,
        })
    }

    fn place(&self, messages: &[Arc<Message>]) -> Place<'_> {
        let mut place = Place {
            turn: None,
            step: 0,
            on_line: 0,
            assistants: 0,
        };
        for message in messages {
            match &**message {
                Message::User { text } => {
                    place.turn = self.turns.iter().find(|turn| turn.answers(text));
                    place.step = 0;
                }
                Message::Assistant { .. } => {
                    place.assistants += 1;
                    place.step += 1;
                    place.on_line += usize::from(place.turn.is_none());
                }
                Message::Tool(_)
                | Message::Note { .. }
                | Message::Summary { .. }
                | Message::StopMarker { .. } => {}
            }
        }
        place
    }
}

/// Position of a request in a conversation.
struct Place<'a> {
    /// The script's turn for the last user message.
    turn: Option<&'a Turn>,
    /// Number of assistant messages since that message.
    step: usize,
    /// Number of assistant messages from the main list.
    on_line: usize,
    /// Number of all assistant messages.
    assistants: usize,
}

fn slots(replies: Vec<Reply>) -> Vec<Arc<Slot>> {
    replies
        .into_iter()
        .map(|reply| {
            Arc::new(Slot {
                reply,
                failed: AtomicU32::new(0),
            })
        })
        .collect()
}
