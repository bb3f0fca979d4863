//! Stops at random moments of real parts: processes of a shell, sockets of a server, a store on disk, threads and the
//! clock of the wall. What paused time cannot show is looked for here, with a seed that has the same moments again.
//!
//! Each run has two turns with commands side by side, one that does not listen to SIGTERM, and one in the background.
//! An undisturbed run is measured first, so that the moments lie over all of it.

mod after;
mod answer;
mod checks;
mod place;
pub(crate) mod random;
mod report;
mod round;
mod system;
mod way;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use allstop_core::turn::StopPolicy;

use random::Random;
use round::Plan;

pub use random::SEED_VARIABLE;
pub use report::{RandomReport, RandomRound};
pub use way::RandomWay;

/// How many runs go on at the same time: they mostly wait, and a stop must hold on a machine that does other things.
const SIDE_BY_SIDE: u32 = 4;

/// How many undisturbed runs are measured: the first one also warms everything up.
const MEASURED: u32 = 3;

/// Stops at random moments.
#[derive(Debug)]
#[must_use = "call run"]
pub struct RandomStops {
    seed: u64,
}

impl RandomStops {
    /// With the seed that the environment names, or a new one.
    ///
    /// # Panics
    /// If the environment names something that is none.
    pub fn from_environment() -> Self {
        Self {
            seed: random::seed(),
        }
    }

    /// Stops so many runs, some side by side.
    ///
    /// # Panics
    /// If the system gives no folder, port, store or thread, or if a run that nobody stops is broken.
    pub fn run(self, rounds: u32) -> RandomReport {
        let mut report = RandomReport::new(self.seed, undisturbed());
        let length = report.length;
        let next = AtomicU32::new(0);
        let work = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let rounds = numbers.take_while(|number| *number < rounds);
            rounds.map(|number| self.round(number, length)).collect()
        };
        std::thread::scope(|threads| {
            let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| threads.spawn(work)).collect();
            for worker in workers {
                let rounds: Vec<_> = worker.join().expect("a round breaks nothing but promises");
                report.rounds.extend(rounds);
            }
        });
        report.rounds.sort_by_key(|round| round.number);
        report
    }

    /// The round of this number: the same moment and way, however many there are.
    fn round(&self, number: u32, length: Duration) -> RandomRound {
        let mut random = Random::new(self.seed.wrapping_add(u64::from(number)));
        // Some come just after the end.
        let moment = random.before(length * 21 / 20);
        let way = RandomWay::choose(&mut random);
        let stop_policy = match random.below(2) {
            0 => StopPolicy::Rollback,
            _ => StopPolicy::Keep,
        };
        let left = round::play(Plan {
            stop: Some((moment, way)),
            stop_policy,
        });
        RandomRound::of(number, moment, way, &left)
    }
}

/// How long a run takes that nobody stops.
fn undisturbed() -> Duration {
    let lengths = (0..MEASURED).map(|_| {
        let left = round::play(Plan {
            stop: None,
            stop_policy: StopPolicy::Rollback,
        });
        let violations = checks::check(&left);
        assert!(violations.is_empty(), "without any stop: {violations:#?}");
        left.length
    });
    lengths.min().unwrap_or_default()
}
