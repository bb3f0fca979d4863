//! Random numbers that a seed makes reproducible.

use std::time::SystemTime;

pub(crate) use allstop_testkit::Random;

/// A number from an environment variable, which people who run the tests can set.
#[expect(
    clippy::disallowed_methods,
    reason = "switches for people who run the tests"
)]
pub(crate) fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seed in `ALLSTOP_TEST_SEED`, or else a new seed. The caller should print the seed, so that a failure can be
/// repeated.
pub(crate) fn seed() -> u64 {
    number_from_environment("ALLSTOP_TEST_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("it is later").as_nanos() as u64
    })
}
