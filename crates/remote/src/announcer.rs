//! Messages between a terminal and the processes that watch or stop its session.

use std::sync::Arc;
use std::time::Instant;

use allstop_core::Receipt;
use allstop_session::SessionStop;
use tokio::sync::mpsc;

use crate::protocol::whole_ms;
use crate::watch_event::WatchEvent;
use crate::watched::Announcement;

/// An accepted stop from another process. The receipt of the stop goes to that process, and the terminal can show the
/// receipt too.
#[derive(Debug)]
pub struct RemoteStop {
    /// The stop.
    pub stop: SessionStop,
    /// True if the stop covers the running turn.
    pub covers_turn: bool,
}

/// Sends the messages of the session's terminal to watchers, in addition to the session's events. Sending never waits.
#[derive(Debug, Clone)]
pub struct Announcer(mpsc::Sender<Announcement>);

impl Announcer {
    pub(crate) fn new(announcements: mpsc::Sender<Announcement>) -> Self {
        Self(announcements)
    }

    /// Reports that no announcements follow.
    pub(crate) fn finish(&self) {
        let _sent_or_full = self.0.try_send(Announcement::Finish);
    }

    /// Sends an event to all watchers.
    pub fn broadcast(&self, event: WatchEvent) {
        // The follower is the task that reads this channel. A full channel means that the follower is not running, and
        // has no watchers.
        let _sent_or_full = self.0.try_send(Announcement::Broadcast(event));
    }

    /// Sends a receipt to all watchers.
    pub fn receipt(&self, receipt: &Arc<Receipt>) {
        let receipt = Arc::clone(receipt);
        self.broadcast(WatchEvent::Receipt { receipt });
    }

    /// Reports that a stop has begun. The stop uses force at the time `force_at`. Sends nothing if `force_at` is
    /// `None`.
    pub fn stopping(&self, force_at: Option<Instant>) {
        let left = force_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left {
            let force_in_ms = whole_ms(left);
            self.broadcast(WatchEvent::Stopping { force_in_ms });
        }
    }

    /// Sends a line to all watchers.
    pub fn note(&self, text: String) {
        self.broadcast(WatchEvent::Note { text });
    }
}
