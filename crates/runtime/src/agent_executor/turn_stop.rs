//! The stop of a task's turn, with the receipt of the session.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, Extent, Receipt};
use allstop_session::{MessageOutcome, SessionStop, StopTarget};
use allstop_task::{PartReceipts, TaskEvent, TaskState};
use futures::future::join;

use super::execution::{answer_event, completed};
use super::message_text::agent_message;
use super::task_turn::TaskTurn;

/// Maximum wait for the outcome of a stopped turn, which follows its receipt. Without an outcome the task ends without
/// the list of the calls.
const OUTCOME_MAX: Duration = Duration::from_millis(200);

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

    /// Events that end the task after the stop of the turn with this cause. `is_answered` is true if the turn had ended
    /// before the stop.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn end_of_stopped(&self, cause: &Cause, is_answered: bool) -> Vec<TaskEvent> {
        let state = TaskState::after_stop(cause.kind);
        if !self.sent.has_begun() {
            return vec![TaskEvent::state(state)];
        }
        let outcome = tokio::time::timeout(OUTCOME_MAX, self.sent.outcome())
            .await
            .ok();
        let is_late = |outcome: &&Arc<MessageOutcome>| outcome.is_completed() && !is_answered;
        if let Some(outcome) = outcome.as_ref().filter(is_late) {
            // The stop came too late: the conversation contains the answer.
            return vec![answer_event(&outcome.output), completed(None)];
        }
        let lost = outcome.as_ref().and_then(|outcome| outcome.lost.as_ref());
        vec![match lost {
            Some(lost) => TaskEvent::status(state, agent_message(lost.to_string())),
            None => TaskEvent::state(state),
        }]
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
