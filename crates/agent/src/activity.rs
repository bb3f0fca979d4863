//! Activity of a turn, for the inactivity limit, and output of its calls.

use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::CallId;
use allstop_tools::CallObserver;
use tokio::time::{Duration, Instant};

use crate::event::{AgentEvent, EventSink};

/// Time of a turn's last sign of activity. Shared by the turn and its calls.
pub(crate) struct ActivityTimer {
    began: Instant,
    active_after_ms: AtomicU64,
    events: EventSink,
}

impl ActivityTimer {
    pub(crate) fn new(events: EventSink) -> Self {
        Self {
            began: Instant::now(),
            active_after_ms: AtomicU64::new(0),
            events,
        }
    }

    pub(crate) fn record_activity(&self) {
        let after = self.began.elapsed().as_millis() as u64;
        self.active_after_ms.fetch_max(after, Ordering::Relaxed);
    }

    pub(crate) fn last_activity(&self) -> Instant {
        self.began + Duration::from_millis(self.active_after_ms.load(Ordering::Relaxed))
    }
}

impl CallObserver for ActivityTimer {
    fn output(&self, call_id: &CallId, text: &str) {
        self.events.send(|| AgentEvent::ToolOutput {
            call_id: call_id.clone(),
            text: text.into(),
        });
    }

    fn heartbeat(&self) {
        self.record_activity();
    }
}
