//! The session of a terminal, as other processes see it.

use std::sync::Arc;
use std::time::Instant;

use allstop_core::Receipt;
use allstop_core::ids::QuestionId;
use allstop_runtime::System;
use allstop_scope::RootOptions;
use allstop_session::{Session, SessionStop};
use tokio::sync::mpsc;

use super::listener::RemoteListener;
use super::owned::{OwnedSession, OwnedSessions, whole_ms};
use super::watch_event::WatchEvent;
use super::watched::Announcement;

/// A stop from elsewhere, which was accepted. Its receipt goes to who asked for it, and can be shown here too.
#[derive(Debug)]
pub(crate) struct RemoteStop {
    pub(crate) stop: SessionStop,
    /// True if it is of the running turn.
    pub(crate) covers_turn: bool,
}

/// The session of a terminal: the stops that come from elsewhere, and announcements to those who watch.
#[derive(Debug)]
pub(crate) struct TerminalSession {
    pub(crate) listener: RemoteListener,
    owned: Arc<OwnedSession>,
    stops: mpsc::Receiver<RemoteStop>,
}

/// Tells watchers what the terminal of the session shows beside its events. It waits for nobody.
#[derive(Debug, Clone)]
pub(crate) struct Announcer(mpsc::Sender<Announcement>);

impl Announcer {
    pub(super) fn new(announcements: mpsc::Sender<Announcement>) -> Self {
        Self(announcements)
    }

    /// Says that nothing follows.
    pub(super) fn finish(&self) {
        let _told_or_full = self.0.try_send(Announcement::Finish);
    }

    /// Shows it to all who watch.
    pub(crate) fn tell(&self, event: WatchEvent) {
        // Full: the follower does not run, so nobody watches.
        let _told_or_full = self.0.try_send(Announcement::Tell(event));
    }

    /// Shows a receipt to all who watch.
    pub(crate) fn receipt(&self, receipt: &Arc<Receipt>) {
        let receipt = Arc::clone(receipt);
        self.tell(WatchEvent::Receipt { receipt });
    }

    /// Says that a stop has begun, which uses force at this time.
    pub(crate) fn stopping(&self, force_at: Option<Instant>) {
        let left = force_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left {
            let force_in_ms = whole_ms(left);
            self.tell(WatchEvent::Stopping { force_in_ms });
        }
    }

    /// Shows a line to all who watch.
    pub(crate) fn note(&self, text: String) {
        self.tell(WatchEvent::Note { text });
    }
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
        let (owned, stops) = sessions.add_of_terminal(session, system.model_name());
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

    /// Tells watchers what the terminal shows.
    pub(crate) fn announcer(&self) -> &Announcer {
        &self.owned.announcer
    }

    /// Name of the answerer of a question, if it was not the terminal of the session.
    pub(crate) fn answered_by(&self, question: &QuestionId) -> Option<String> {
        self.owned.watched.answered_by(question)
    }
}
