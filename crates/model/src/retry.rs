//! When to try again: a pure decision. The waiting is the loop's, in its own scope.

use std::time::Duration;

use crate::ModelError;

/// How often and how patiently a failed call is repeated.
///
/// There is no jitter: one session makes one call at a time, and a provider that wants callers spread out says so with
/// `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Calls in all, the first included; 1 repeats nothing.
    pub attempts_max: u32,
    /// The wait after the first failure; it doubles with each further one.
    pub first_delay: Duration,
    /// The longest wait of our own choosing.
    pub delay_max: Duration,
    /// The longest wait that a provider may ask for; beyond it the error is handed on at once.
    pub retry_after_max: Duration,
}

impl Default for RetryPolicy {
    /// Three calls, half a second and a second apart: enough for a restart of a local server or a brief overload, and
    /// a mistyped URL still answers within two seconds. A `Retry-After` up to a minute, the window in which most
    /// providers count.
    fn default() -> Self {
        Self {
            attempts_max: 3,
            first_delay: Duration::from_millis(500),
            delay_max: Duration::from_secs(8),
            retry_after_max: Duration::from_mins(1),
        }
    }
}

impl RetryPolicy {
    /// A policy that never repeats a call.
    pub fn never() -> Self {
        Self {
            attempts_max: 1,
            ..Self::default()
        }
    }

    /// How long to wait before the next call, or `None` to give up.
    ///
    /// `attempt` is the number of the call that failed, from 1. `remaining` is what is left of the nearest deadline: a
    /// wait that would use it up is not begun, because the caller learns more from the error than from a timeout.
    pub fn next_delay(
        &self,
        attempt: u32,
        error: &ModelError,
        remaining: Option<Duration>,
    ) -> Option<Duration> {
        if !error.kind.is_transient() || attempt >= self.attempts_max {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(16);
        let own = self
            .first_delay
            .saturating_mul(1 << doublings)
            .min(self.delay_max);
        let delay = match error.retry_after {
            Some(asked) if asked > self.retry_after_max => return None,
            Some(asked) => asked.max(own),
            None => own,
        };
        remaining.is_none_or(|left| delay < left).then_some(delay)
    }
}
