//! Decision after each attempt to deliver an event to a webhook. The order of events never changes: an event is
//! repeated until the receiver accepts the event, or until the deliveries for the webhook's configuration end or are
//! paused.

use std::time::Duration;

use tokio::time::Instant;

use super::options::PushOptions;

/// Maximum number of doublings of the pause between two attempts. The pause reaches `pause_max` after far fewer
/// doublings.
const DOUBLINGS_MAX: u32 = 20;

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    /// The receiver answered with this HTTP status, and may have requested this pause.
    Answered(u16, Option<Duration>),
    /// No response arrived. The text contains the reason, without secrets.
    Failed(String),
}

/// Next step of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryStep {
    /// The event is delivered: continue with the next.
    Delivered,
    /// The receiver wants no more events: delete the configuration.
    Delete,
    /// Repeat the event after this pause.
    Repeat(Duration),
    /// The receiver failed for too long: pause the configuration.
    Pause,
}

/// Attempts to deliver one event.
#[derive(Debug, Default)]
pub(crate) struct EventAttempts {
    failures: u32,
    failing_since: Option<Instant>,
}

impl EventAttempts {
    /// Decides the next step after an attempt. `random` distributes the repetitions of many deliveries over time.
    pub(crate) fn decide(
        &mut self,
        result: &AttemptResult,
        options: &PushOptions,
        now: Instant,
        random: u64,
    ) -> DeliveryStep {
        let asked = match result {
            AttemptResult::Answered(200..=299, _) => return DeliveryStep::Delivered,
            AttemptResult::Answered(410, _) => return DeliveryStep::Delete,
            AttemptResult::Answered(_, asked) => *asked,
            AttemptResult::Failed(_) => None,
        };
        let since = *self.failing_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= options.failing_max {
            return DeliveryStep::Pause;
        }
        let doublings = self.failures.min(DOUBLINGS_MAX);
        self.failures += 1;
        let longest = options
            .pause_min
            .saturating_mul(1 << doublings)
            .min(options.pause_max);
        // A random pause between half of `longest` and `longest`.
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(millis / 2 + random % (millis / 2 + 1));
        let asked = asked.unwrap_or_default().min(options.pause_max);
        DeliveryStep::Repeat(pause.max(asked))
    }

    /// Number of failures.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}
