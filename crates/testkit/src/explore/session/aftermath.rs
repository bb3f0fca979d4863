//! What a session's user and subscriber saw.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_core::{MessageId, TurnNumber};
use allstop_session::{Admission, FollowUp, MessageOutcome, SendError, SessionEvent, Waited};

use crate::explore::world::Order;

/// A message that somebody sent.
#[derive(Debug, Clone)]
pub struct SentMessage {
    /// Its id, if it was taken.
    pub id: Option<MessageId>,
    /// Its words.
    pub text: Arc<str>,
    /// What it was to do to the others.
    pub policy: FollowUp,
    /// When sending returned.
    pub order: Order,
    /// At which point.
    pub point: u32,
    /// What became of it at first; `None` where only a waiter knew.
    pub admission: Result<Option<Admission>, SendError>,
    /// What it came to, and when that was known.
    pub outcome: Option<(Order, Arc<MessageOutcome>)>,
    /// What whoever waited for idle was told, and when.
    pub waited: Option<(Order, Waited)>,
    /// Whoever waited for it went away: nobody is there to be told.
    pub waiter_gone: bool,
}

/// A turn that was to be taken back.
#[derive(Debug, Clone)]
pub struct Undone {
    /// When it was asked for.
    pub asked: Order,
    /// Which turn it was, or why none.
    pub answer: Option<Result<TurnNumber, String>>,
}

/// What a session's user and subscriber saw.
#[derive(Debug, Clone, Default)]
pub struct SessionAftermath {
    /// Every message, in the order of sending.
    pub sent: Vec<SentMessage>,
    /// What the subscriber was given.
    pub events: Vec<(Order, SessionEvent)>,
    /// What was to be taken back.
    pub undone: Vec<Undone>,
    /// What the session's own handle says was committed; `None` if it could not be opened.
    pub history: Option<Arc<Conversation>>,
}
