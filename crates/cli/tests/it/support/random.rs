//! Moments that nobody has chosen, and that can be had again.

use std::time::{Duration, SystemTime};

/// A number from the environment, for people who run the tests.
#[expect(
    clippy::disallowed_methods,
    reason = "switches for people who run the tests"
)]
pub(crate) fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `ALLSTOP_TEST_SEED`, or another one each time. Print it.
pub(crate) fn seed() -> u64 {
    number_from_environment("ALLSTOP_TEST_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("it is later").as_nanos() as u64
    })
}

/// Numbers that look random, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // Vigna's splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// A moment before this one.
    pub(crate) fn before(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(end.as_micros() as u64))
    }
}
