//! Messages between a terminal and those who watch or stop its session.

use std::sync::Arc;
use std::time::Instant;

use allstop_core::Receipt;
use allstop_session::SessionStop;
use tokio::sync::mpsc;

use crate::protocol::whole_ms;
use crate::watch_event::WatchEvent;
use crate::watched::Announcement;

/// A stop from elsewhere, which was accepted. Its receipt goes to who asked for it, and can be shown here too.
#[derive(Debug)]
pub struct RemoteStop {
    /// The stop.
    pub stop: SessionStop,
    /// True if it is of the running turn.
    pub covers_turn: bool,
}

/// Tells watchers what the terminal of the session shows beside its events. It waits for nobody.
#[derive(Debug, Clone)]
pub struct Announcer(mpsc::Sender<Announcement>);

impl Announcer {
    pub(crate) fn new(announcements: mpsc::Sender<Announcement>) -> Self {
        Self(announcements)
    }

    /// Says that nothing follows.
    pub(crate) fn finish(&self) {
        let _told_or_full = self.0.try_send(Announcement::Finish);
    }

    /// Shows it to all who watch.
    pub fn tell(&self, event: WatchEvent) {
        // Full: the follower does not run, so nobody watches.
        let _told_or_full = self.0.try_send(Announcement::Tell(event));
    }

    /// Shows a receipt to all who watch.
    pub fn receipt(&self, receipt: &Arc<Receipt>) {
        let receipt = Arc::clone(receipt);
        self.tell(WatchEvent::Receipt { receipt });
    }

    /// Says that a stop has begun, which uses force at this time.
    pub fn stopping(&self, force_at: Option<Instant>) {
        let left = force_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left {
            let force_in_ms = whole_ms(left);
            self.tell(WatchEvent::Stopping { force_in_ms });
        }
    }

    /// Shows a line to all who watch.
    pub fn note(&self, text: String) {
        self.tell(WatchEvent::Note { text });
    }
}
