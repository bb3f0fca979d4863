//! Random moments from a seed, which can be repeated.

use std::time::{Duration, SystemTime};

/// Environment variable with a seed. The same seed gives the same random moments.
pub(crate) const SEED_VARIABLE: &str = "ALLSTOP_EXPLORE_SEED";

/// The seed in [`SEED_VARIABLE`]. If the variable is not set, returns a new seed at each call.
///
/// # Panics
/// Panics if the variable is not a number, because a test with another seed would not test the requested case.
pub(crate) fn seed() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a failure is seen again from the command line of any test runner"
    )]
    let text = std::env::var(SEED_VARIABLE);
    match text {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|wrong| panic!("{SEED_VARIABLE}={text}: {wrong}")),
        Err(_) => SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos() as u64),
    }
}

/// Pseudo-random numbers that depend only on the seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The algorithm is Vigna's splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }

    /// Returns a moment before `end`.
    pub fn before(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(end.as_micros() as u64))
    }
}
