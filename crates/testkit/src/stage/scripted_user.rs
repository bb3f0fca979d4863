//! User of a scenario, who sends, waits, looks, and goes on.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use allstop_session::{
    MessageHandle, MessageOutcome, NewMessage, Session, SessionEvent, WaitResult,
};
use tokio::time::timeout;

use super::session_under_way::SessionUnderWay;

/// Longest wait of a user for something that a stop may have kept from happening.
const LOOKS_FOR: Duration = Duration::from_mins(2);

/// The user of an explored session. Clones are the same user.
#[derive(Clone)]
pub struct ScriptedUser {
    pub(crate) session: Session,
    pub(crate) live: Arc<SessionUnderWay>,
}

impl ScriptedUser {
    /// The session, for what is not a message.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sends a message. `None`: it was not taken.
    pub fn send(&self, message: impl Into<NewMessage>) -> Option<MessageHandle> {
        self.live.send(&self.session, message.into())
    }

    /// Sends a message and waits for what it comes to. `None`: it was not taken.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops nothing.
    pub async fn ask(&self, message: impl Into<NewMessage>) -> Option<Arc<MessageOutcome>> {
        Some(self.send(message)?.outcome().await)
    }

    /// Sends a message and waits until all is idle. `None`: it was not taken, or the waiter was made to go away.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops nothing.
    pub async fn send_and_wait(
        &self,
        message: impl Into<NewMessage>,
        limit: Duration,
    ) -> Option<WaitResult> {
        let waiter = self.live.wait(&self.session, message.into(), limit);
        // The explorer polls its user whenever anything has happened.
        std::future::poll_fn(|_| self.live.waited(waiter)).await
    }

    /// Waits until the subscriber has been given such an event. `false`: a stop came between, or it never came.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn until(&self, wanted: impl Fn(&SessionEvent) -> bool) -> bool {
        let seen = std::future::poll_fn(|_| {
            if self.live.has_seen(&wanted) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        timeout(LOOKS_FOR, seen).await.is_ok()
    }
}

impl std::fmt::Debug for ScriptedUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedUser").finish_non_exhaustive()
    }
}
