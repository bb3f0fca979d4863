//! Decides about retries, without side effects. The caller does the waiting, so that a stop of the caller also ends the
//! wait.

use std::time::Duration;

use crate::ModelError;

/// The number of retries, and their delays.
///
/// The delays have no random part (jitter). Jitter separates callers that fail together. But a session makes only one
/// call at a time, and a provider can use `Retry-After` to distribute its callers over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Maximum number of calls, including the first call; 1 means no retry.
    pub attempts_max: u32,
    /// Delay after the first failure. Each further failure doubles the delay.
    pub first_delay: Duration,
    /// Longest delay, unless the provider asks for a longer one.
    pub delay_max: Duration,
    /// Longest delay that a provider may ask for. If the provider asks for a longer one, the error is returned
    /// immediately.
    pub retry_after_max: Duration,
}

impl Default for RetryPolicy {
    /// Three calls, with delays of half a second and one second. This is enough for the restart of a local server or
    /// for a brief overload. A mistyped URL still fails within two seconds. The policy accepts a `Retry-After` of up to
    /// one minute, because rate limits usually apply to one minute.
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

    /// Sets the maximum number of calls, including the first call.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = attempts_max;
        self
    }

    /// Sets the delay after the first failure.
    #[must_use]
    pub fn first_delay(mut self, first_delay: Duration) -> Self {
        self.first_delay = first_delay;
        self
    }

    /// Sets the longest delay, unless the provider asks for a longer one.
    #[must_use]
    pub fn delay_max(mut self, delay_max: Duration) -> Self {
        self.delay_max = delay_max;
        self
    }

    /// Delay before the next call; `None` if there is no next call.
    ///
    /// `attempt` is the number of the failed call, from 1. `remaining` is the time to the nearest deadline. If the
    /// delay would be longer than `remaining`, there is no retry, because the error contains more information than a
    /// timeout.
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
