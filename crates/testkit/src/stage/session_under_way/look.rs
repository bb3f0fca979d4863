//! Looks at the session: events and answers until now, and everybody who still waits.

use std::task::{Context, Poll};

use allstop_session::{MessageHandle, Session, SessionEvent, SessionEventKind};
use futures::FutureExt as _;

use super::{SessionRunState, SessionUnderWay};
use crate::observe::{SessionObservation, ToldFacts, ToldOutcome};

impl SessionUnderWay {
    pub(crate) fn has_seen(&self, wanted: &impl Fn(&SessionEvent) -> bool) -> bool {
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
            let order = self.watch.witness.now();
            if let (Some(told), SessionEventKind::Recorded { version, .. }) =
                (&self.told, &event.kind)
            {
                told.record(*version);
            }
            self.state.lock().seen.push((order, event));
        }
    }

    /// Looks at everything that somebody waits for.
    pub(crate) fn look(&self, cx: &mut Context<'_>) {
        self.drain(cx);
        self.stops.poll_answers(cx);
        let mut state = self.state.lock();
        let SessionRunState {
            sent,
            waiters,
            undone,
            ..
        } = &mut *state;
        for waiter in waiters {
            if let Some(waiting) = &mut waiter.waiting
                && let Poll::Ready(waited) = waiting.poll_unpin(cx)
            {
                waiter.waiting = None;
                let waited = waited.ok();
                if let Some((message, handle)) = sent.get_mut(waiter.message) {
                    *handle = waited.as_ref().map(|waited| waited.sent.clone());
                    let now = self.watch.witness.now();
                    message.waited = waited.clone().map(|waited| (now, waited));
                }
                waiter.waited = Poll::Ready(waited);
            }
        }
        for (message, handle) in sent {
            if message.outcome.is_none()
                && let Some(outcome) = handle.as_ref().and_then(MessageHandle::try_outcome)
            {
                if let (Some(told), Some(id)) = (&self.told, &message.id) {
                    told.outcome(id, &outcome);
                }
                message.outcome = Some((self.watch.witness.now(), outcome));
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

    /// True if everybody who waits has been answered.
    pub(crate) fn all_answered(&self) -> bool {
        let state = self.state.lock();
        let outcomes = state.sent.iter().all(|(message, _)| {
            message.outcome.is_some() || message.waiter_gone || message.admission.is_err()
        });
        let busy = state.session.as_ref().is_some_and(Session::is_busy);
        outcomes
            && !busy
            && self.stops.all_answered()
            && state.undone.iter().all(|(_, undoing)| undoing.is_none())
            && state.waiters.iter().all(|waiter| waiter.waiting.is_none())
    }

    pub(crate) fn seen(&self) -> SessionObservation {
        let state = self.state.lock();
        SessionObservation {
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

    /// Word that the user was given until now.
    pub(crate) fn told(&self) -> ToldFacts {
        let state = self.state.lock();
        let versions = state.seen.iter().filter_map(|(_, event)| match event.kind {
            SessionEventKind::Recorded { version, .. } => Some(version.0),
            _ => None,
        });
        let outcomes = state.sent.iter().filter_map(|(message, _)| {
            let (_, outcome) = message.outcome.as_ref()?;
            Some(ToldOutcome::of(message.id.as_ref()?, outcome))
        });
        ToldFacts {
            newest_record: versions.max().unwrap_or_default(),
            outcomes: outcomes.collect(),
        }
    }
}
