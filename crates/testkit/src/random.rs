//! Seeded random moments, reproducible.

use std::time::{Duration, SystemTime};

/// The environment variable that has the same random moments again.
pub(crate) const SEED_VARIABLE: &str = "ALLSTOP_EXPLORE_SEED";

/// [`SEED_VARIABLE`], or another one each time.
///
/// # Panics
/// If the variable is no number: other moments than those asked for would be no answer.
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

/// Numbers that look random, the same for the same seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        // Vigna's splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }

    /// A moment before this one.
    pub fn before(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(end.as_micros() as u64))
    }
}
