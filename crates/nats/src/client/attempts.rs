//! Attempts of one request until its time limit.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// First pause before a request is repeated. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Pauses between the attempts of one request, and the time at which the attempts end.
#[derive(Debug)]
pub(crate) struct Attempts {
    until: Instant,
    pause: Duration,
}

impl Attempts {
    pub(crate) fn within(max: Duration) -> Self {
        Self {
            until: Instant::now() + max,
            pause: PAUSE_MIN,
        }
    }

    /// Waits before the next attempt. Returns false if the time is over.
    pub(crate) async fn next(&mut self) -> bool {
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
