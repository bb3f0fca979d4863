//! Waits for conditions.

use std::time::{Duration, Instant};

/// Time limit for a condition whose duration is not measured. It is far longer than a busy machine needs, and shorter
/// than the limit of a test.
pub(crate) const FACT_MAX: Duration = Duration::from_secs(20);

/// Interval between two checks of a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until `look` returns a value; `None` if the time limit is reached first.
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
/// If `look` returns no value within the time limit.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(FACT_MAX, look) {
        Some(fact) => fact,
        None => panic!("never seen: {what}"),
    }
}
