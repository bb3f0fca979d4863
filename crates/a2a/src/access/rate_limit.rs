//! Rate limit of the requests of each principal (the sender of a request), as a generic cell rate algorithm. For each
//! principal, the algorithm stores one point in time instead of a counter and a clock.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::principal::Principal;

/// Maximum number of counted principals. If the table is full, the entries of principals that were idle for a second
/// are removed. This constant therefore limits the memory (about 2 MB), and not the number of users.
const PRINCIPALS_MAX: usize = 16_384;

/// Rate limiter. Each principal may send a number of requests per second, in bursts of at most this number.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Time between two requests at the permitted rate.
    interval: Duration,
    /// Maximum time by which the requests of a principal may be ahead of the permitted rate: one second minus one
    /// interval.
    lead_max: Duration,
    principals_max: usize,
    /// For each principal, the time at which its next request would be due at the permitted rate. A time in the past
    /// has the effect of a missing entry.
    due: Mutex<HashMap<Principal, Instant>>,
}

impl RateLimiter {
    pub(super) fn new(per_second: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            lead_max: Duration::from_secs(1).saturating_sub(interval),
            principals_max: PRINCIPALS_MAX,
            due: Mutex::default(),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// If the principal has sent too many requests, returns the time after which the next request is admitted.
    pub(super) fn take(&self, principal: &Principal, now: Instant) -> Result<(), Duration> {
        let mut all = self.due.lock();
        let due = all.get(principal).copied().unwrap_or(now).max(now);
        let beyond = (due - now).saturating_sub(self.lead_max);
        if !beyond.is_zero() {
            return Err(beyond);
        }
        if all.len() >= self.principals_max && !all.contains_key(principal) {
            all.retain(|_, due| *due > now);
            if all.len() >= self.principals_max {
                // The table is full, so the request cannot be counted and is refused. Within a second, an entry becomes
                // free.
                return Err(Duration::from_secs(1));
            }
        }
        all.insert(principal.clone(), due + self.interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_second: u32) -> RateLimiter {
        RateLimiter::new(NonZeroU32::new(per_second).unwrap())
    }

    fn user(number: usize) -> Principal {
        Principal::new(&format!("user{number}")).unwrap()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn burst_then_the_rate() {
        let (limit, start) = (limiter(4), Instant::now());
        for _ in 0..4 {
            assert_eq!(limit.take(&user(1), start), Ok(()));
        }
        assert_eq!(limit.take(&user(1), start), Err(250 * MS));
        // A refused request does not count.
        assert_eq!(limit.take(&user(1), start + 100 * MS), Err(150 * MS));
        assert_eq!(limit.take(&user(1), start + 250 * MS), Ok(()));
        assert!(limit.take(&user(1), start + 250 * MS).is_err());
        // Another principal has a separate limit.
        assert_eq!(limit.take(&user(2), start), Ok(()));
        // After an idle time, the principal can send one burst again, but not more.
        let later = start + 3_600_000 * MS;
        let admitted = (0..100).filter(|_| limit.take(&user(1), later).is_ok());
        assert_eq!(admitted.count(), 4);
    }

    #[test]
    fn one_per_second() {
        let (limit, start) = (limiter(1), Instant::now());
        assert_eq!(limit.take(&user(1), start), Ok(()));
        assert_eq!(limit.take(&user(1), start), Err(1000 * MS));
        assert_eq!(limit.take(&user(1), start + 1000 * MS), Ok(()));
    }

    #[test]
    fn table_of_principals_is_bounded() {
        let (mut limit, start) = (limiter(1), Instant::now());
        limit.principals_max = 10;
        for number in 0..10 {
            assert_eq!(limit.take(&user(number), start), Ok(()));
        }
        assert_eq!(limit.take(&user(10), start), Err(1000 * MS));
        assert_eq!(limit.take(&user(10), start + 1000 * MS), Ok(()));
        assert_eq!(limit.due.lock().len(), 1, "idle principals are forgotten");
    }
}
