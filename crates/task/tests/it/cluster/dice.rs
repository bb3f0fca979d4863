//! Random numbers from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generator of random numbers. Clones share one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Dice(Arc<AtomicU64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(
            seed.wrapping_mul(0xd134_2543_de82_ef95),
        )))
    }

    /// Returns a random number from 0 to `sides` - 1.
    pub(crate) fn roll(&self, sides: u64) -> u64 {
        // SplitMix64.
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
