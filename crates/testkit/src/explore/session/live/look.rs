//! What has been seen by now, and whether anybody still waits.

use std::task::{Context, Poll};

use allstop_session::{Sent, Session, SessionEvent, SessionEventKind};
use futures::FutureExt as _;

use super::asks::Ask;
use super::{SessionLive, State};
use crate::explore::aftermath::{Answered, Asked};
use crate::explore::session::aftermath::SessionAftermath;

impl SessionLive {
    pub(in crate::explore::session) fn has_seen(
        &self,
        wanted: &impl Fn(&SessionEvent) -> bool,
    ) -> bool {
        self.state
            .lock()
            .seen
            .iter()
            .any(|(_, event)| wanted(event))
    }

    /// Takes what the subscriber is given by now.
    pub(super) fn drain(&self, cx: &mut Context<'_>) {
        let mut events = self.events.lock();
        let Some(subscription) = &mut *events else {
            return;
        };
        while let Poll::Ready(Ok(Some(event))) = Box::pin(subscription.next()).poll_unpin(cx) {
            let order = self.world.now();
            if let (Some(told), SessionEventKind::Recorded { version, .. }) =
                (&self.told, &event.kind)
            {
                told.record(*version);
            }
            self.state.lock().seen.push((order, event));
        }
    }

    /// Looks at everything that somebody waits for.
    pub(in crate::explore::session) fn look(&self, cx: &mut Context<'_>) {
        self.drain(cx);
        let mut state = self.state.lock();
        let State {
            asks,
            sent,
            waiters,
            undone,
            ..
        } = &mut *state;
        for Ask { asked, receipt, .. } in asks {
            if let Some(waiting) = receipt
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *receipt = None;
                asked.answer = Some(Answered {
                    receipt: answer,
                    order: self.world.now(),
                    at: self.points.elapsed(),
                });
            }
        }
        for waiter in waiters {
            if let Some(waiting) = &mut waiter.waiting
                && let Poll::Ready(waited) = waiting.poll_unpin(cx)
            {
                waiter.waiting = None;
                let waited = waited.ok();
                if let Some((message, handle)) = sent.get_mut(waiter.message) {
                    *handle = waited.as_ref().map(|waited| waited.sent.clone());
                    let now = self.world.now();
                    message.waited = waited.clone().map(|waited| (now, waited));
                }
                waiter.waited = Poll::Ready(waited);
            }
        }
        for (message, handle) in sent {
            if message.outcome.is_none()
                && let Some(outcome) = handle.as_ref().and_then(Sent::try_outcome)
            {
                if let (Some(told), Some(id)) = (&self.told, &message.id) {
                    told.outcome(id, &outcome);
                }
                message.outcome = Some((self.world.now(), outcome));
            }
        }
        for (undone, undoing) in undone {
            if let Some(waiting) = undoing
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *undoing = None;
                undone.answer = Some(answer);
            }
        }
    }

    /// Whether everybody who waits has been answered.
    pub(in crate::explore::session) fn all_answered(&self) -> bool {
        let state = self.state.lock();
        let outcomes = state.sent.iter().all(|(message, _)| {
            message.outcome.is_some() || message.waiter_gone || message.admission.is_err()
        });
        let busy = state.session.as_ref().is_some_and(Session::is_busy);
        outcomes
            && !busy
            && state.asks.iter().all(|ask| ask.receipt.is_none())
            && state.undone.iter().all(|(_, undoing)| undoing.is_none())
            && state.waiters.iter().all(|waiter| waiter.waiting.is_none())
    }

    /// How many stops were asked for.
    pub(in crate::explore::session) fn stops(&self) -> Vec<Asked> {
        let state = self.state.lock();
        state.asks.iter().map(|ask| ask.asked.clone()).collect()
    }

    pub(in crate::explore::session) fn seen(&self) -> SessionAftermath {
        let state = self.state.lock();
        SessionAftermath {
            sent: state.sent.iter().map(|(sent, _)| sent.clone()).collect(),
            events: state.seen.clone(),
            undone: state
                .undone
                .iter()
                .map(|(undone, _)| undone.clone())
                .collect(),
            history: None,
        }
    }
}
