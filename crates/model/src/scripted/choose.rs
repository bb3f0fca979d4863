//! Selects the reply to a request. A script has a main list of replies, and turns: lists of replies to user messages
//! that contain a certain text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use allstop_core::counted::counted;
use allstop_core::{Image, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reply;
use crate::ModelError;

/// Order of the replies outside `turns`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplyOrder {
    /// The number of the reply is the number of assistant messages in the request: the same request gets the same
    /// reply, even in a new process.
    #[default]
    History,
    /// Each call gets the next reply, regardless of its request; a retry counts as a call.
    Calls,
}

#[derive(Debug)]
pub(super) struct CompiledScript {
    order: ReplyOrder,
    turns: Vec<CompiledTurn>,
    line: Vec<Arc<ScriptedReply>>,
    /// Index of the next reply of the main list, for [`ReplyOrder::Calls`].
    next: AtomicUsize,
}

/// Replies to user messages that contain a certain text, or have a certain number of images.
#[derive(Debug)]
pub(super) struct CompiledTurn {
    when: Option<String>,
    /// Number of images that the message must have, if the script limits it.
    images: Option<usize>,
    replies: Vec<Arc<ScriptedReply>>,
}

/// A reply, and the number of its failures so far.
#[derive(Debug)]
pub(super) struct ScriptedReply {
    pub(super) definition: Reply,
    failed: AtomicU32,
}

#[derive(Debug)]
pub(super) struct ChosenReply {
    pub(super) reply: Arc<ScriptedReply>,
    /// Number of assistant messages in the request. With this number, the ids of the reply's calls are unique in the
    /// conversation.
    pub(super) assistants: usize,
}

impl ChosenReply {
    /// The only reply to a request.
    pub(super) fn of(reply: Reply, assistants: usize) -> Self {
        let reply = ScriptedReply {
            definition: reply,
            failed: AtomicU32::new(0),
        };
        Self {
            reply: Arc::new(reply),
            assistants,
        }
    }
}

impl CompiledTurn {
    pub(super) fn new(when: Option<String>, images: Option<usize>, replies: Vec<Reply>) -> Self {
        Self {
            when,
            images,
            replies: scripted_replies(replies),
        }
    }

    fn answers(&self, text: &str, images: &[Image]) -> bool {
        self.when.as_deref().is_none_or(|when| text.contains(when))
            && self.images.is_none_or(|count| count == images.len())
    }
}

impl ScriptedReply {
    /// If this request fails, returns the error and counts the failure.
    pub(super) fn error_at_start(&self) -> Option<ModelError> {
        let (error, times) = self.definition.error.as_ref()?;
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

impl CompiledScript {
    pub(super) fn new(order: ReplyOrder, turns: Vec<CompiledTurn>, line: Vec<Reply>) -> Self {
        Self {
            order,
            turns,
            line: scripted_replies(line),
            next: AtomicUsize::new(0),
        }
    }

    /// Returns the reply to a request with this conversation, or the reason why the script has none.
    pub(super) fn choose(&self, messages: &[Arc<Message>]) -> Result<ChosenReply, String> {
        let position = self.position(messages);
        let (replies, at, which) = match position.turn {
            Some(turn) => (&turn.replies, position.step, "turn"),
            None if self.order == ReplyOrder::Calls => (
                &self.line,
                self.next.fetch_add(1, Ordering::Relaxed),
                "script",
            ),
            None => (&self.line, position.on_line, "script"),
        };
        let reply = replies.get(at).ok_or_else(|| {
            format!(
                "the {which} has {}, and this request needs number {}",
                counted(replies.len() as u64, "reply", "replies"),
                at + 1
            )
        })?;
        Ok(ChosenReply {
            reply: Arc::clone(reply),
            assistants: position.assistants,
        })
    }

    fn position(&self, messages: &[Arc<Message>]) -> RequestPosition<'_> {
        let mut position = RequestPosition {
            turn: None,
            step: 0,
            on_line: 0,
            assistants: 0,
        };
        for message in messages {
            match &**message {
                Message::User { text, images } => {
                    position.turn = self.turns.iter().find(|turn| turn.answers(text, images));
                    position.step = 0;
                }
                Message::Assistant { .. } => {
                    position.assistants += 1;
                    position.step += 1;
                    position.on_line += usize::from(position.turn.is_none());
                }
                Message::Tool(_)
                | Message::Note { .. }
                | Message::Summary { .. }
                | Message::StopMarker { .. } => {}
            }
        }
        position
    }
}

/// Position of a request in a conversation.
struct RequestPosition<'a> {
    /// The turn of the script that answers the last user message.
    turn: Option<&'a CompiledTurn>,
    /// Number of assistant messages since the last user message.
    step: usize,
    /// Number of assistant messages that came from the main list.
    on_line: usize,
    /// Number of all assistant messages.
    assistants: usize,
}

fn scripted_replies(replies: Vec<Reply>) -> Vec<Arc<ScriptedReply>> {
    replies
        .into_iter()
        .map(|reply| {
            Arc::new(ScriptedReply {
                definition: reply,
                failed: AtomicU32::new(0),
            })
        })
        .collect()
}
