//! Facts of a run: the stops, the state of the machine, and the events of the session that reached its user and its
//! subscriber.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::turn::Conversation;
use allstop_core::{Cause, Extent, MessageId, Receipt, TurnNumber};
use allstop_session::{Admission, FollowUp, MessageOutcome, SendError, SessionEvent, WaitResult};

use super::witness::Order;

/// A stop that was requested in a run.
#[derive(Debug, Clone)]
pub struct ObservedStop {
    /// Requested extent: the part of the work that the stop covers.
    pub extent: Extent,
    /// Requested cause.
    pub cause: Cause,
    /// Point at which the stop was requested.
    pub point: u32,
    /// Moment at which the stop was accepted. After this moment no work in the extent starts.
    pub accepted: Order,
    /// Time of the acceptance on the clock of the run.
    pub at: Duration,
    /// Answer to the stop; `None` before the answer arrives.
    pub answer: Option<StopAnswer>,
}

/// Answer to a stop.
#[derive(Debug, Clone)]
pub struct StopAnswer {
    /// The receipt: the result of the stop for each piece of work.
    pub receipt: Arc<Receipt>,
    /// Moment at which the receipt became available.
    pub order: Order,
    /// Time of the answer on the clock of the run.
    pub at: Duration,
}

/// The first stop of a turn from outside the run, by any method.
#[derive(Debug, Clone)]
pub struct Disturbance {
    /// Cause of the stop.
    pub cause: Cause,
    /// Point at which the stop came; `None` for a deadline.
    pub point: Option<u32>,
    /// Moment at which the stop was accepted; `None` for a deadline.
    pub accepted: Option<Order>,
    /// Time of the stop on the clock of the run.
    pub at: Duration,
}

/// Observation of the machine when a receipt was available.
#[derive(Debug, Clone)]
pub struct MachineSnapshot {
    /// Extent of the stop.
    pub extent: Extent,
    /// The receipt; `None` if no answer came in time.
    pub receipt: Option<Arc<Receipt>>,
    /// Command lines of the processes that ran.
    pub running: Vec<String>,
    /// Command lines of the processes of background work.
    pub background: Vec<String>,
    /// Number of open connections that the server still saw for a model call that the receipt reports as stopped.
    pub connections: usize,
}

/// Effect of a call outside the process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedEffect {
    /// Id of the call.
    pub call: Arc<str>,
    /// Name of the effect.
    pub what: Arc<str>,
}

/// A message that the user sent.
#[derive(Debug, Clone)]
pub struct SentMessage {
    /// Id of the message; `None` if it was not accepted.
    pub id: Option<MessageId>,
    /// Text of the message.
    pub text: Arc<str>,
    /// Follow-up policy of the message: the treatment of the message if a turn runs, such as `enqueue` or `interrupt`.
    pub policy: FollowUp,
    /// Moment at which sending returned.
    pub order: Order,
    /// Point at which sending returned.
    pub point: u32,
    /// First answer of the session to the message; `None` if only a waiter received this answer.
    pub admission: Result<Option<Admission>, SendError>,
    /// Outcome of the message, and the moment at which the user received the outcome.
    pub outcome: Option<(Order, Arc<MessageOutcome>)>,
    /// Answer to the waiter that waits until the session is idle, and the moment of the answer.
    pub waited: Option<(Order, WaitResult)>,
    /// True if the waiter for this message left, so that the outcome of the message was not delivered.
    pub waiter_gone: bool,
}

/// Session as its user and its subscriber observed it.
#[derive(Debug, Clone, Default)]
pub struct SessionObservation {
    /// Every message, in the order of sending.
    pub sent: Vec<SentMessage>,
    /// Events that the subscriber received.
    pub events: Vec<(Order, SessionEvent)>,
    /// Turns that were reported as undone.
    pub undone: Vec<TurnNumber>,
    /// Committed conversation that the session's handle returned; `None` if the session could not be opened.
    pub history: Option<Arc<Conversation>>,
}

impl SessionObservation {
    /// Messages that were accepted.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &SentMessage> {
        self.sent.iter().filter(|sent| sent.id.is_some())
    }
}
