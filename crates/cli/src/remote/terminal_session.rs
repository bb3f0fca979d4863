//! The session of a terminal, as other processes see it.

use std::sync::Arc;

use allstop_core::ids::QuestionId;
use allstop_runtime::System;
use allstop_scope::RootOptions;
use allstop_session::Session;
use tokio::sync::mpsc;

use super::announcer::{Announcer, RemoteStop};
use super::listener::RemoteListener;
use super::owned::{OwnedSession, OwnedSessions};

/// The session of a terminal: the stops that come from elsewhere, and announcements to those who watch.
#[derive(Debug)]
pub(crate) struct TerminalSession {
    pub(crate) listener: RemoteListener,
    owned: Arc<OwnedSession>,
    stops: mpsc::Receiver<RemoteStop>,
}

impl TerminalSession {
    /// Listens for the session of this terminal.
    pub(crate) fn listen(
        command: &'static str,
        session: &Session,
        system: &System,
        scopes: RootOptions,
    ) -> Self {
        let sessions = OwnedSessions::new(command, system.folder().to_owned(), scopes);
        sessions.set_store(system.store_file());
        let (owned, stops) = sessions.take_terminal(session);
        Self {
            listener: RemoteListener::listen(sessions),
            owned,
            stops,
        }
    }

    /// The next stop from elsewhere. It was accepted before.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next_stop(&mut self) -> RemoteStop {
        match self.stops.recv().await {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// A stop from elsewhere that has come already: each that can have ended anything by now is told.
    pub(crate) fn try_next_stop(&mut self) -> Option<RemoteStop> {
        drop(self.owned.accepting.lock());
        self.stops.try_recv().ok()
    }

    /// Tells watchers what the terminal shows.
    pub(crate) fn announcer(&self) -> &Announcer {
        &self.owned.announcer
    }

    /// Name of the answerer of a question, if it was not the terminal of the session.
    pub(crate) fn answered_by(&self, question: &QuestionId) -> Option<String> {
        self.owned.watched.answered_by(question)
    }
}
