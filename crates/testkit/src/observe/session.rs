//! Session as its user and its subscriber saw it.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_core::{MessageId, TurnNumber};
use allstop_session::{Admission, FollowUp, MessageOutcome, SendError, SessionEvent, WaitResult};

use super::witness::Order;

/// A message that somebody sent.
#[derive(Debug, Clone)]
pub struct SentMessage {
    /// Its id, if it was taken.
    pub id: Option<MessageId>,
    /// Its words.
    pub text: Arc<str>,
    /// Policy for the messages before it.
    pub policy: FollowUp,
    /// When sending returned.
    pub order: Order,
    /// At which point.
    pub point: u32,
    /// First answer to it; `None` where only a waiter knew.
    pub admission: Result<Option<Admission>, SendError>,
    /// Its outcome, and the moment in which that was known.
    pub outcome: Option<(Order, Arc<MessageOutcome>)>,
    /// Answer to whoever waited for idle, and its moment.
    pub waited: Option<(Order, WaitResult)>,
    /// True if its waiter went away: nobody is there to be told.
    pub waiter_gone: bool,
}

/// A turn that was to be taken back.
#[derive(Debug, Clone)]
pub struct UndoneTurn {
    /// When it was asked for.
    pub asked: Order,
    /// The turn, or the reason why there was none.
    pub answer: Option<Result<TurnNumber, String>>,
}

/// Session as its user and its subscriber saw it.
#[derive(Debug, Clone, Default)]
pub struct SessionObservation {
    /// Every message, in the order of sending.
    pub sent: Vec<SentMessage>,
    /// Events that the subscriber was given.
    pub events: Vec<(Order, SessionEvent)>,
    /// Turns that were to be taken back.
    pub undone: Vec<UndoneTurn>,
    /// Conversation that the session's own handle says was committed; `None` if it could not be opened.
    pub history: Option<Arc<Conversation>>,
}

impl SessionObservation {
    /// Messages that were taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &SentMessage> {
        self.sent.iter().filter(|sent| sent.id.is_some())
    }
}
