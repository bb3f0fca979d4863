//! Waits for conditions.

use std::time::{Duration, Instant};

/// Time limit for an unmeasured condition: far longer than needed on a busy machine, shorter than the limit of a test.
pub(crate) const FACT_MAX: Duration = Duration::from_secs(20);

/// Polling interval for a condition without a notification.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until `look` returns a value; `None` after the limit.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that looks again and again"
)]
pub(crate) fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(fact) = look() {
            return Some(fact);
        }
        if begin.elapsed() > limit {
            return None;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Waits until `look` returns a value.
///
/// # Panics
/// After the time limit.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(FACT_MAX, look) {
        Some(fact) => fact,
        None => panic!("never seen: {what}"),
    }
}
