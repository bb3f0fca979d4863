//! Decides about retries, without side effects. The waits happen in the caller's scope.

use std::time::Duration;

use crate::ModelError;

/// Number and delays of retries.
///
/// The delays have no jitter: a session makes one call at a time, and a provider can spread callers out with
/// `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of calls, including the first; 1 means no retry.
    pub attempts_max: u32,
    /// Delay after the first failure; it doubles with each further failure.
    pub first_delay: Duration,
    /// Longest delay, unless the provider asks for more.
    pub delay_max: Duration,
    /// Longest delay that a provider may ask for. If the provider asks for more, the error is returned at once.
    pub retry_after_max: Duration,
}

impl Default for RetryPolicy {
    /// Three calls with delays of half a second and one second: enough for a restart of a local server or a brief
    /// overload, while a mistyped URL still fails within two seconds. A `Retry-After` of up to a minute is honoured,
    /// because a minute is the usual rate-limit window.
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

    /// Delay before the next call; `None` to give up.
    ///
    /// `attempt` is the number of the failed call, from 1. `remaining` is the time to the nearest deadline. A delay
    /// that would exceed it is not started, because the error contains more information than a timeout.
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
