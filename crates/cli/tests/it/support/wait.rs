//! Waiting for facts.

use std::time::{Duration, Instant};

/// Time for a fact that is not measured: far more than it takes on a busy machine, less than a test has.
pub(crate) const FACT_MAX: Duration = Duration::from_secs(20);

/// Interval at which a fact is looked for where nothing announces it.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until the fact is there; `None` if it is not within the limit.
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

/// Waits until the fact is there.
///
/// # Panics
/// If it does not come.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match within(FACT_MAX, look) {
        Some(fact) => fact,
        None => panic!("never seen: {what}"),
    }
}
