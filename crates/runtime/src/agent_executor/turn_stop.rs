//! The stop of a task's turn, with the receipt of the session.

use std::sync::Arc;

use allstop_core::{Cause, Extent, Receipt};
use allstop_session::{SessionStop, StopTarget};
use allstop_task::PartReceipts;
use futures::future::join;

use super::task_turn::TaskTurn;

impl TaskTurn {
    /// Stops the running or waiting turn and its background work, and waits for the receipt. Other turns of the session
    /// continue. Returns false if work may still run.
    pub(super) async fn stop(&self, cause: &Cause, receipts: &PartReceipts) -> bool {
        // The message with the text of a denial is stopped first, because the message would otherwise start a new turn.
        let steered = self.stop_steered(cause);
        let target = StopTarget::MessageWork(self.id().clone());
        let stop = self.session.stop(&target, cause.clone());
        let steered = async {
            match &steered {
                Some(steered) => Some(steered.receipt().await),
                None => None,
            }
        };
        let (receipt, steered) = join(stop.receipt(), steered).await;
        let own = self.own_part(receipt).await;
        let mut is_quiet = true;
        for receipt in own.into_iter().chain(steered) {
            is_quiet &= receipt.quiet();
            receipts.add(receipt);
        }
        is_quiet
    }

    /// Returns the part of the receipt that belongs to the turn. If a stop with a wider extent came first, its receipt
    /// also contains work of other tasks, which may belong to other users.
    async fn own_part(&self, receipt: Arc<Receipt>) -> Vec<Arc<Receipt>> {
        let extent = receipt.request().extent;
        if matches!(extent, Extent::Turn | Extent::Subtree) {
            return vec![receipt];
        }
        let background = self.session.background_account(self.id()).await;
        let turn = self.sent.try_outcome();
        let turn = turn.and_then(|outcome| outcome.receipt.clone());
        turn.into_iter().chain(background).collect()
    }

    /// Stops the background work of an ended turn, and waits until this work has ended.
    pub(super) async fn end_background(&self, cause: &Cause) {
        let target = StopTarget::MessageWork(self.id().clone());
        self.session.stop(&target, cause.clone()).receipt().await;
    }

    /// Withdraws the message with the text of a denial if the turn did not take it. Otherwise the message would start a
    /// separate turn.
    pub(super) fn stop_steered(&self, cause: &Cause) -> Option<SessionStop> {
        let steered = self.steered.as_ref()?;
        let target = StopTarget::Message(steered.id.clone());
        let is_open = steered.try_outcome().is_none();
        is_open.then(|| self.session.stop(&target, cause.clone()))
    }
}
