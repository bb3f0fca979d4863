//! Pauses between the attempts of a write.

use std::time::Duration;

use tokio::time::sleep;

/// First pause before a write is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause: a store that comes back is used again within a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Growing pause between the attempts of a write.
#[derive(Debug)]
pub(super) struct RepeatPause(Duration);

impl Default for RepeatPause {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl RepeatPause {
    /// Waits, and makes the next pause longer.
    pub(super) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = PAUSE_MAX.min(self.0 * 2);
    }
}
