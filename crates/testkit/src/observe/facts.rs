//! Facts of a run: its stops, the machine, and the session as its user and its subscriber saw it.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::turn::Conversation;
use allstop_core::{Cause, Extent, MessageId, Receipt, TurnNumber};
use allstop_session::{Admission, FollowUp, MessageOutcome, SendError, SessionEvent, WaitResult};

use super::witness::Order;

/// Stop that was asked for in a run.
#[derive(Debug, Clone)]
pub struct ObservedStop {
    /// Extent that it was to cover.
    pub extent: Extent,
    /// Cause that was given.
    pub cause: Cause,
    /// Point at which it was asked for.
    pub point: u32,
    /// Moment of its acceptance: from then on nothing in its extent starts.
    pub accepted: Order,
    /// The same on the clock of the run.
    pub at: Duration,
    /// Answer, once it came.
    pub answer: Option<StopAnswer>,
}

/// Answer to a stop.
#[derive(Debug, Clone)]
pub struct StopAnswer {
    /// The receipt.
    pub receipt: Arc<Receipt>,
    /// Moment from which it could be read.
    pub order: Order,
    /// The same on the clock of the run.
    pub at: Duration,
}

/// First stop of a turn from outside, whatever brought it.
#[derive(Debug, Clone)]
pub struct Disturbance {
    /// Its cause.
    pub cause: Cause,
    /// Point at which it came; none for a deadline.
    pub point: Option<u32>,
    /// Moment of its acceptance; none for a deadline.
    pub accepted: Option<Order>,
    /// The same on the clock of the run.
    pub at: Duration,
}

/// Look at the machine when a receipt was there.
#[derive(Debug, Clone)]
pub struct MachineLook {
    /// Extent of the stop.
    pub extent: Extent,
    /// The receipt; none where there was no answer in time.
    pub receipt: Option<Arc<Receipt>>,
    /// Command lines of the processes that ran.
    pub running: Vec<String>,
    /// Those of background work.
    pub background: Vec<String>,
    /// Connections that the server still saw open, of a model call that the receipt calls stopped.
    pub connections: usize,
}

/// Trace that a call left in the world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallEffect {
    /// Id of the call.
    pub call: Arc<str>,
    /// Part of its work that it did.
    pub what: Arc<str>,
}

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

/// Session as its user and its subscriber saw it.
#[derive(Debug, Clone, Default)]
pub struct SessionObservation {
    /// Every message, in the order of sending.
    pub sent: Vec<SentMessage>,
    /// Events that the subscriber was given.
    pub events: Vec<(Order, SessionEvent)>,
    /// Turns that were said to be taken back.
    pub undone: Vec<TurnNumber>,
    /// Conversation that the session's own handle says was committed; `None` if it could not be opened.
    pub history: Option<Arc<Conversation>>,
}

impl SessionObservation {
    /// Messages that were taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &SentMessage> {
        self.sent.iter().filter(|sent| sent.id.is_some())
    }
}
