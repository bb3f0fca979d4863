//! Targets of a stop, and the handle of an accepted stop, which has its receipt.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{ReceiptItem, StopInfo};
use allstop_core::{CallId, Extent, MessageId, Receipt, StopId};
use allstop_scope::Stop;
use tokio::time::{Duration, timeout};

use crate::message::MessageState;

/// Maximum wait for the ending of a turn after its stop: the time limit for writing that ending.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Target of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// One call of the running turn. The turn continues, and the model gets a result. A call of a sub-agent is named as
    /// in receipts, by the path of calls that contain it: `call_1/call_2`.
    Call(CallId),
    /// The running turn. Background work and waiting messages continue.
    Turn,
    /// The running turn and all background work. Waiting messages continue.
    TurnAndBackground,
    /// The same, and background work that runs without this process: it was detached, or an earlier process left it
    /// running.
    AllWork,
    /// The whole session: it accepts no more messages until it is opened again.
    Session,
    /// Everything below the host's scope: all sessions of the process, and shared parts such as MCP servers.
    Process,
    /// One piece of background work: a shell, or a sub-agent with all its work.
    Background(BackgroundId),
    /// The turn of one message, running or waiting. A message that was handed to the running turn is withdrawn and ends
    /// alone unless that turn has taken it; then that turn is stopped and named in the receipt.
    Message(MessageId),
}

impl StopTarget {
    /// Extent in receipts.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Call(_) => Extent::Call,
            Self::Turn | Self::Message(_) => Extent::Turn,
            Self::TurnAndBackground | Self::AllWork => Extent::TurnAndBackground,
            Self::Session => Extent::Session,
            Self::Process => Extent::Process,
            Self::Background(_) => Extent::Subtree,
        }
    }
}

/// An accepted stop, or the result that there was nothing to stop. Dropping it changes nothing.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct SessionStop {
    request: StopInfo,
    progress: StopProgress,
    /// Work that runs outside of its extent and without this process: no scope knows of it.
    outside: Arc<[ReceiptItem]>,
}

#[derive(Debug, Clone)]
enum StopProgress {
    Answered(Arc<Receipt>),
    /// A stop, and the message whose turn it ends: the message's state has the effect on the conversation.
    One(Stop, Option<Arc<MessageState>>),
    /// Parts that are stopped independently, in parallel.
    Parts(Vec<SessionStop>),
}

impl SessionStop {
    pub(crate) fn answered(receipt: Receipt) -> Self {
        Self {
            request: receipt.request().clone(),
            progress: StopProgress::Answered(Arc::new(receipt)),
            outside: Arc::default(),
        }
    }

    pub(crate) fn one(stop: Stop, turn: Option<Arc<MessageState>>) -> Self {
        Self {
            request: stop.request().clone(),
            progress: StopProgress::One(stop, turn),
            outside: Arc::default(),
        }
    }

    pub(crate) fn parts(request: StopInfo, parts: Vec<Self>) -> Self {
        Self {
            request,
            progress: StopProgress::Parts(parts),
            outside: Arc::default(),
        }
    }

    /// Names work that runs outside of the extent in its receipts.
    pub(crate) fn beside(self, outside: Vec<ReceiptItem>) -> Self {
        Self {
            outside: outside.into(),
            ..self
        }
    }

    /// True if there was nothing to stop.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.progress, StopProgress::Answered(_))
    }

    /// The request.
    pub fn request(&self) -> &StopInfo {
        &self.request
    }

    /// True if the receipt with this id belongs to this stop or to a part of it.
    pub fn covers(&self, stop: &StopId) -> bool {
        let is_of_part = |parts: &[Self]| parts.iter().any(|part| part.covers(stop));
        self.request.stop_id == *stop
            || matches!(&self.progress, StopProgress::Parts(parts) if is_of_part(parts))
    }

    /// Ends the grace of the stop and forces the remaining work now.
    pub fn force(&self) {
        match &self.progress {
            StopProgress::Answered(_) => {}
            StopProgress::One(stop, _) => stop.force(),
            StopProgress::Parts(parts) => parts.iter().for_each(Self::force),
        }
    }

    /// Waits for the receipt: at most grace, force and one second for writing the ending of a turn.
    ///
    /// # Cancel safety
    /// Cancel safe: the stop continues even if no caller waits.
    pub async fn receipt(&self) -> Arc<Receipt> {
        add_outside(self.receipt_of_extent().await, &self.outside)
    }

    async fn receipt_of_extent(&self) -> Arc<Receipt> {
        match &self.progress {
            StopProgress::Answered(receipt) => Arc::clone(receipt),
            StopProgress::One(stop, turn) => {
                let receipt = stop.receipt().await;
                match turn {
                    Some(turn) if receipt.outcome().is_none() => {
                        // Ended or not: the receipt contains the facts known by then.
                        let _ended_or_not = timeout(ENDING_MAX, turn.outcome()).await;
                        Arc::new(turn.complete_now(&receipt))
                    }
                    // The commit is being written: there is nothing to stop, and the ending is not confirmed yet.
                    Some(turn) if !turn.is_settled() => Arc::new(turn.complete_now(&receipt)),
                    _ => receipt,
                }
            }
            StopProgress::Parts(parts) => {
                let mut receipts = Vec::with_capacity(parts.len());
                for part in parts {
                    // Boxed: an async recursion.
                    receipts.push(Box::pin(part.receipt()).await);
                }
                Arc::new(Receipt::of_parts(self.request.clone(), &receipts))
            }
        }
    }

    /// Current account of the stop, for callers that cannot wait.
    pub fn account_now(&self) -> Arc<Receipt> {
        add_outside(self.account_of_extent(), &self.outside)
    }

    fn account_of_extent(&self) -> Arc<Receipt> {
        match &self.progress {
            StopProgress::Answered(receipt) => Arc::clone(receipt),
            StopProgress::One(stop, turn) => {
                let receipt = stop.account_now();
                match turn {
                    Some(turn) if receipt.outcome().is_none() || !turn.is_settled() => {
                        Arc::new(turn.complete_now(&receipt))
                    }
                    _ => receipt,
                }
            }
            StopProgress::Parts(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::account_now).collect();
                Arc::new(Receipt::of_parts(self.request.clone(), &parts))
            }
        }
    }
}

/// Adds work that runs outside of the extent, unless the receipt names it already, or says that there was nothing to stop.
pub(crate) fn add_outside(receipt: Arc<Receipt>, outside: &[ReceiptItem]) -> Arc<Receipt> {
    let is_named = |item: &&ReceiptItem| receipt.items().iter().any(|named| named.id == item.id);
    let missing: Vec<_> = outside
        .iter()
        .filter(|item| !is_named(item))
        .cloned()
        .collect();
    if missing.is_empty() || receipt.outcome().is_some() {
        return receipt;
    }
    Arc::new(Receipt::clone(&receipt).with_outside_items(missing))
}
