//! The start of a turn.

use std::sync::Arc;

use crate::ids::{BackgroundId, MessageId, TurnNumber};
use crate::image::Images;
use crate::message::Message;
use crate::process::ProcessIdentity;
use crate::record::{SessionRecord, TurnOrigin};
use crate::time::Timestamp;

/// Parameters of a turn's start.
#[derive(Debug, Clone)]
pub struct TurnStart {
    /// Number of the turn in the session.
    pub turn: TurnNumber,
    /// Text of the user's message.
    pub input: Arc<str>,
    /// Images of the user's message.
    pub images: Images,
    /// Time of the start.
    pub at: Timestamp,
    /// The process that runs the turn.
    pub owner: Option<ProcessIdentity>,
    /// Id of the message that caused the turn.
    pub message: Option<MessageId>,
    /// Origin of the turn. A turn that was started by background work has no user message.
    pub origin: TurnOrigin,
    /// Notes about ended background work, placed before the user's message.
    pub notes: Vec<BackgroundNote>,
}

/// A note to the model about background work that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundNote {
    /// Id of the work.
    pub id: BackgroundId,
    /// Text of the note.
    pub text: Arc<str>,
}

impl TurnStart {
    /// The record of the start, which must be durable before the first call.
    pub fn record(&self) -> SessionRecord {
        SessionRecord::TurnStarted {
            turn: self.turn,
            at: self.at,
            input: Arc::clone(&self.input),
            images: self.images.infos(),
            owner: self.owner.clone(),
            message: self.message.clone(),
            origin: self.origin,
            reported: self.notes.iter().map(|note| note.id.clone()).collect(),
        }
    }

    /// First messages of the turn: the notes, then the user's message.
    pub(super) fn messages(&self) -> Vec<Arc<Message>> {
        let notes = self.notes.iter().map(|note| Message::Note {
            text: Arc::clone(&note.text),
        });
        let words = (self.origin == TurnOrigin::User).then(|| Message::User {
            text: Arc::clone(&self.input),
            images: self.images.clone(),
        });
        notes.chain(words).map(Arc::new).collect()
    }
}
