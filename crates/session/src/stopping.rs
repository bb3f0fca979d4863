//! Targets of a stop, and the stop under way.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::StopRequest;
use allstop_core::{CallId, Extent, MessageId, Receipt, StopId};
use allstop_scope::Stop;
use tokio::time::{Duration, timeout};

use crate::message::MessageState;

/// Longest wait for the ending of a turn when its stop is over: the time that the turn has to write it.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Target of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// One call of the running turn; the turn goes on, and the model is told. A call of a sub-agent is named as in
    /// receipts, by the calls that it lies in: `call_1/call_2`.
    Call(CallId),
    /// The running turn. Background work and messages that wait go on.
    Turn,
    /// The running turn and all background work. Messages that wait go on.
    TurnAndBackground,
    /// The whole session: it takes no message any more until it is opened again.
    Session,
    /// Everything that runs below the host's scope: this session, all others of the process, and what they share, such as
    /// MCP servers.
    Process,
    /// One piece of background work: a shell, or a sub-agent and all that it started.
    Background(BackgroundId),
    /// The turn of one message, whether it runs or waits. A message that was handed to the running turn is taken back if
    /// that has not taken it yet, and ends alone; once taken it is a part of that turn, which is stopped, and whose
    /// number the receipt has.
    Message(MessageId),
}

impl StopTarget {
    /// The extent that receipts name.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Call(_) => Extent::Call,
            Self::Turn | Self::Message(_) => Extent::Turn,
            Self::TurnAndBackground => Extent::TurnAndBackground,
            Self::Session => Extent::Session,
            Self::Process => Extent::Process,
            Self::Background(_) => Extent::Subtree,
        }
    }
}

/// A stop that was accepted, or the answer that there was nothing to stop. Dropping it changes nothing.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct Stopping {
    request: StopRequest,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Answered(Arc<Receipt>),
    /// With the message whose turn it ends: what became of the conversation is known with that.
    One(Stop, Option<Arc<MessageState>>),
    /// Parts with a ladder of their own, side by side.
    Parts(Vec<Stopping>),
}

impl Stopping {
    pub(crate) fn answered(receipt: Receipt) -> Self {
        Self {
            request: receipt.request().clone(),
            what: What::Answered(Arc::new(receipt)),
        }
    }

    pub(crate) fn one(stop: Stop, turn: Option<Arc<MessageState>>) -> Self {
        Self {
            request: stop.request().clone(),
            what: What::One(stop, turn),
        }
    }

    pub(crate) fn parts(request: StopRequest, parts: Vec<Self>) -> Self {
        Self {
            request,
            what: What::Parts(parts),
        }
    }

    /// The request.
    pub fn request(&self) -> &StopRequest {
        &self.request
    }

    /// Whether a receipt with this id is of this stop, or of a part of it.
    pub fn covers(&self, stop: &StopId) -> bool {
        let is_of_part = |parts: &[Self]| parts.iter().any(|part| part.covers(stop));
        self.request.stop_id == *stop
            || matches!(&self.what, What::Parts(parts) if is_of_part(parts))
    }

    /// Forces now what is being asked.
    pub fn force(&self) {
        match &self.what {
            What::Answered(_) => {}
            What::One(stop, _) => stop.force(),
            What::Parts(parts) => parts.iter().for_each(Self::force),
        }
    }

    /// The receipt, within grace, force and the second that the ending of a turn may take to be written.
    ///
    /// # Cancel safety
    /// Cancel safe: the stop goes on, whoever waits.
    pub async fn receipt(&self) -> Arc<Receipt> {
        match &self.what {
            What::Answered(receipt) => Arc::clone(receipt),
            What::One(stop, turn) => {
                let receipt = stop.receipt().await;
                match turn {
                    Some(turn) if receipt.outcome().is_none() => {
                        // Over or not: the receipt says what is known by then.
                        let _ended_or_not = timeout(ENDING_MAX, turn.outcome()).await;
                        Arc::new(turn.complete_now(&receipt))
                    }
                    // Its commit is being written: nothing is to be stopped, and the ending is not confirmed yet.
                    Some(turn) if !turn.is_settled() => Arc::new(turn.complete_now(&receipt)),
                    _ => receipt,
                }
            }
            What::Parts(parts) => {
                let mut receipts = Vec::with_capacity(parts.len());
                for part in parts {
                    // Boxed: a stop of parts has parts of one kind only, which the compiler cannot know.
                    receipts.push(Box::pin(part.receipt()).await);
                }
                Arc::new(Receipt::of_parts(self.request.clone(), &receipts))
            }
        }
    }

    /// The account of this moment, for whoever cannot wait.
    pub fn account_now(&self) -> Arc<Receipt> {
        match &self.what {
            What::Answered(receipt) => Arc::clone(receipt),
            What::One(stop, turn) => {
                let receipt = stop.account_now();
                match turn {
                    Some(turn) if receipt.outcome().is_none() || !turn.is_settled() => {
                        Arc::new(turn.complete_now(&receipt))
                    }
                    _ => receipt,
                }
            }
            What::Parts(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::account_now).collect();
                Arc::new(Receipt::of_parts(self.request.clone(), &parts))
            }
        }
    }
}
