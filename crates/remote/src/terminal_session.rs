//! The session of a terminal, as other processes access it.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::ids::QuestionId;
use allstop_session::Session;
use tokio::sync::mpsc;

use crate::announcer::{Announcer, RemoteStop};
use crate::listener::RemoteListener;
use crate::owned::OwnedSession;

/// The session of a terminal: receives stops from other processes, and sends announcements to watchers. Watchers are
/// programs in other terminals that show the session.
#[derive(Debug)]
pub struct TerminalSession {
    /// Socket of the process.
    pub listener: RemoteListener,
    owned: Arc<OwnedSession>,
    stops: mpsc::Receiver<RemoteStop>,
}

impl TerminalSession {
    /// Gives other processes access to the session of this terminal, through a socket that is already open. `store` is
    /// the file of the session's store.
    pub fn new(listener: RemoteListener, session: &Session, store: Option<PathBuf>) -> Self {
        let sessions = listener.sessions();
        sessions.set_store(store);
        let (owned, stops) = sessions.take_terminal(session);
        Self {
            listener,
            owned,
            stops,
        }
    }

    /// The next stop from another process. The stop is already accepted.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next_stop(&mut self) -> RemoteStop {
        match self.stops.recv().await {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// A stop from another process that has already arrived. If a stop is being accepted at this moment, waits for this
    /// stop. The caller therefore receives every stop that can have ended work.
    pub fn try_next_stop(&mut self) -> Option<RemoteStop> {
        drop(self.owned.accepting.lock());
        self.stops.try_recv().ok()
    }

    /// Sends the messages of this terminal to watchers.
    pub fn announcer(&self) -> &Announcer {
        &self.owned.announcer
    }

    /// Name of the program that answered a permission question, if the answer did not come from the terminal of the
    /// session.
    pub fn answered_by(&self, question: &QuestionId) -> Option<String> {
        self.owned.watched.answered_by(question)
    }
}
