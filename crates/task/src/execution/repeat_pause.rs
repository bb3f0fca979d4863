//! Pauses between two attempts of a write.

use std::time::Duration;

use tokio::time::sleep;

/// First pause before a write is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause. With this pause, writes continue within a second after the store has recovered.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Growing pause between two attempts of a write.
#[derive(Debug)]
pub(super) struct RepeatPause(Duration);

impl Default for RepeatPause {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl RepeatPause {
    /// Waits, and doubles the next pause up to the maximum.
    pub(super) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = PAUSE_MAX.min(self.0 * 2);
    }
}

/// Longest pause before the executor of a take-over starts. A take-over continues an execution that another worker has
/// lost.
const TAKE_OVER_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Pause before the executor starts, after this number of take-overs. The first take-over has no pause, because the
/// execution is rarely the cause of the lost worker. From the second take-over on, the pause starts at 1 s and doubles
/// each time, because the cause may disappear with time.
pub(super) fn take_over_pause(take_overs: u32) -> Duration {
    match take_overs {
        0 | 1 => Duration::ZERO,
        more => Duration::from_secs(1 << (more - 2).min(16)).min(TAKE_OVER_PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_take_over_runs_at_once_and_later_ones_ever_later() {
        let pauses = [0, 1, 2, 3, 4, 100].map(|count| take_over_pause(count).as_secs());
        assert_eq!(pauses, [0, 0, 1, 2, 4, 30]);
    }
}
