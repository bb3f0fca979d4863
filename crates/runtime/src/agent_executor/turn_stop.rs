//! The stop of a task's turn, with the receipt of the session.

use std::sync::Arc;

use allstop_core::receipt::StopFindings;
use allstop_core::{Cause, Extent, Receipt};
use allstop_session::{SessionStop, StopTarget};
use allstop_task::TaskEvent;
use allstop_task::model::TaskState;
use futures::future::join_all;

use super::task_turn::TaskTurn;

impl TaskTurn {
    /// Stops the turn, running or waiting, and its attached background work, and waits for the receipts. Other turns of
    /// the session continue.
    pub(super) async fn stop(&self, cause: &Cause) -> Arc<Receipt> {
        let message = StopTarget::Message(self.id().clone());
        let turn = self.session.stop(&message, cause.clone());
        let mut others: Vec<_> = self.stop_steered(cause).into_iter().collect();
        others.extend(self.stop_background(cause));
        // The turn first: its request is the one that the joined receipt has.
        let first = std::iter::once(&turn).chain(&others);
        let mut receipts = join_all(first.map(SessionStop::receipt)).await;
        // Work that a call has moved to the background at the last moment.
        let late = self.stop_background(cause);
        receipts.extend(join_all(late.iter().map(SessionStop::receipt)).await);
        self.own_part(&receipts)
    }

    /// The part of these receipts that is the turn's. A stop of the whole program may have come first; its receipt has
    /// the work of other tasks, which may belong to other users.
    fn own_part(&self, receipts: &[Arc<Receipt>]) -> Arc<Receipt> {
        let is_wider = |receipt: &&Arc<Receipt>| {
            matches!(receipt.request().extent, Extent::Session | Extent::Process)
        };
        let mut own: Vec<_> = receipts.iter().filter(|r| !is_wider(r)).cloned().collect();
        if let Some(wider) = receipts.iter().find(is_wider) {
            let outcome = self.sent.try_outcome();
            own.extend(outcome.and_then(|outcome| outcome.receipt.clone()));
            let left = StopFindings {
                items: self.work.preview().into(),
                ..StopFindings::default()
            };
            own.push(Arc::new(Receipt::of_stop(wider.request().clone(), left)));
        }
        let joined = Receipt::joined(&own);
        joined.expect("the stop of the message has a receipt")
    }

    /// Stops the attached background work of a turn that has ended, and waits for it.
    pub(super) async fn end_background(&self, cause: &Cause) {
        let stops = self.stop_background(cause);
        join_all(stops.iter().map(SessionStop::receipt)).await;
    }

    /// Withdraws the text of a denial that the turn did not take: otherwise it would get a turn of its own.
    pub(super) fn stop_steered(&self, cause: &Cause) -> Option<SessionStop> {
        let steered = self.steered.as_ref()?;
        let target = StopTarget::Message(steered.id.clone());
        let is_open = steered.try_outcome().is_none();
        is_open.then(|| self.session.stop(&target, cause.clone()))
    }

    /// Stops the background work, whatever the cause: nobody waits for it any more, and the end of the task would not
    /// name it.
    fn stop_background(&self, cause: &Cause) -> Vec<SessionStop> {
        let works = self.work.running_background().into_iter();
        let stop = |id| {
            self.session
                .stop(&StopTarget::Background(id), cause.clone())
        };
        works.map(|work| stop(work.id.clone())).collect()
    }
}

/// End of a stopped task.
pub(super) fn event(cause: &Cause) -> TaskEvent {
    TaskEvent::state(TaskState::after_stop(cause.kind))
}
