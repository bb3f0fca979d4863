//! Seeded random numbers, reproducible.

use std::time::SystemTime;

pub(crate) use allstop_testkit::Random;

/// A number from the environment, set by users of the tests.
#[expect(
    clippy::disallowed_methods,
    reason = "switches for people who run the tests"
)]
pub(crate) fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `ALLSTOP_TEST_SEED`, or a new seed each time. Print the seed.
pub(crate) fn seed() -> u64 {
    number_from_environment("ALLSTOP_TEST_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("it is later").as_nanos() as u64
    })
}
