//! Messages, and those who wait until all is idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use allstop_core::MessageId;
use allstop_session::{FollowUp, MessageHandle, NewMessage, SendError, Session, WaitResult};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{SessionRunState, SessionUnderWay, noop};
use crate::observe::SentMessage;

/// Text of the message that is sent while another is answered, under each policy.
pub const FOLLOW_UP: &str = "the follow-up";

/// Somebody who sent a message and waits until all is idle.
pub(super) struct IdleWaiter {
    pub(super) message: usize,
    pub(super) waiting: Option<BoxFuture<'static, Result<WaitResult, SendError>>>,
    pub(super) waited: Poll<Option<WaitResult>>,
}

impl SessionUnderWay {
    pub(super) fn follow_up(&self, policy: FollowUp) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        self.send(&session, NewMessage::from(FOLLOW_UP).policy(policy));
        true
    }

    pub(crate) fn send(&self, session: &Session, message: NewMessage) -> Option<MessageHandle> {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let answer = session.send(message);
        let sent = SentMessage {
            id: answer.as_ref().ok().map(|sent| sent.id.clone()),
            text,
            policy,
            order: self.watch.witness.now(),
            point: self.watch.points.newest(),
            admission: match &answer {
                Ok(sent) => Ok(Some(sent.admission)),
                Err(error) => Err(error.clone()),
            },
            outcome: None,
            waited: None,
            waiter_gone: false,
        };
        let answer = answer.ok();
        self.state.lock().sent.push((sent, answer.clone()));
        answer
    }

    /// Sends with a waiter. Its number.
    pub(crate) fn wait(&self, session: &Session, message: NewMessage, limit: Duration) -> usize {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let session = session.clone();
        let before = self.messages.load(Ordering::Relaxed);
        let mut waiting = async move { session.send_and_wait(message, limit).await }.boxed();
        // The first poll sends it.
        let now = waiting.poll_unpin(&mut noop());
        let newest = self.messages.load(Ordering::Relaxed);
        let refused = match &now {
            Poll::Ready(Err(error)) => Some(error.clone()),
            _ => None,
        };
        let taken = refused.is_none() && newest > before;
        let sent = SentMessage {
            id: taken.then(|| MessageId::new(format!("m_{newest}"))),
            text,
            policy,
            order: self.watch.witness.now(),
            point: self.watch.points.newest(),
            admission: refused.map_or(Ok(None), Err),
            outcome: None,
            waited: None,
            waiter_gone: false,
        };
        let mut state = self.state.lock();
        state.sent.push((sent, None));
        let message = state.sent.len() - 1;
        let (waiting, waited) = match now {
            Poll::Ready(waited) => (None, Poll::Ready(waited.ok())),
            Poll::Pending => (Some(waiting), Poll::Pending),
        };
        state.waiters.push(IdleWaiter {
            message,
            waiting,
            waited,
        });
        state.waiters.len() - 1
    }

    pub(crate) fn waited(&self, waiter: usize) -> Poll<Option<WaitResult>> {
        let state = self.state.lock();
        let waiter = state.waiters.get(waiter);
        waiter.map_or(Poll::Pending, |waiter| waiter.waited.clone())
    }

    pub(super) fn waiters_go_away(&self) -> bool {
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        let SessionRunState { waiters, sent, .. } = &mut *state;
        for waiter in waiters {
            if let Some(waiting) = waiter.waiting.take() {
                waiter.waited = Poll::Ready(None);
                if let Some((sent, _)) = sent.get_mut(waiter.message) {
                    sent.waiter_gone = true;
                }
                gone.push(waiting);
            }
        }
        drop(state);
        let any = !gone.is_empty();
        drop(gone);
        any
    }
}
