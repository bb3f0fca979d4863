//! Runs are stopped at random moments, by every signal, once or twice, with and without faults. Each run must end in
//! time. Its reports must agree with the remaining processes, with its log, and with the next run's request to the
//! model.
//!
//! Long run: `ALLSTOP_TEST_STOPS=10000 cargo test -p allstop-cli --test it random_stops::stops -- --nocapture`. With
//! stalls: `ALLSTOP_TEST_STALLS=2000 … random_stops::stalls`. The variable `ALLSTOP_TEST_SEED` repeats the cases of a
//! seed. If the variable `ALLSTOP_TEST_LIFE` is also set, only the session with this number runs.

mod case;
mod checks;
mod stall;
mod stopped_session;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::support::random::{self, number_from_environment};
use stopped_session::{ROUNDS, StoppedSession};

/// Number of stopped runs, unless the environment sets another number.
const STOPS: u64 = 40;

/// Number of sessions that run concurrently. It is independent of the number of processors, because a session waits
/// most of the time.
const AT_ONCE: u64 = 4;

/// Number of sessions between two progress lines of a long test.
const PROGRESS_EVERY: u64 = 100;

#[test]
fn stops() {
    check("ALLSTOP_TEST_STOPS", false);
}

#[test]
fn stalls() {
    check("ALLSTOP_TEST_STALLS", true);
}

/// Counts of observations by their names, for the output of the test.
pub(super) type Tally = BTreeMap<String, u64>;

#[expect(clippy::print_stdout, reason = "figures for who reads the output")]
fn check(variable: &str, with_stalls: bool) {
    let stops = number_from_environment(variable).unwrap_or(STOPS);
    let seed = random::seed();
    let alone = number_from_environment("ALLSTOP_TEST_LIFE");
    println!("{stops} stops, ALLSTOP_TEST_SEED={seed}");
    let (next, lives) = (AtomicU64::new(alone.unwrap_or(0)), stops.div_ceil(ROUNDS));
    let end = alone.map_or(lives, |alone| alone + 1);
    let results: Mutex<(Tally, Vec<String>)> = Mutex::default();
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            let mut stopped = StoppedSession::new(seed.wrapping_add(number), with_stalls);
            let ended = stopped.run_all();
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            let (tally, broken) = &mut *results;
            for (name, count) in stopped.tally {
                *tally.entry(name).or_default() += count;
            }
            if let Err(why) = ended {
                println!("ALLSTOP_TEST_LIFE={number}: {why}");
                broken.push(format!("ALLSTOP_TEST_LIFE={number}: {}", first_line(&why)));
            }
            if number > 0 && number % PROGRESS_EVERY == 0 {
                println!("{number} of {lives} lives, {} broken", broken.len());
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(worker);
        }
    });
    let (tally, broken) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{tally:#?}");
    let seed = format!("ALLSTOP_TEST_SEED={seed}");
    assert!(
        broken.is_empty(),
        "{seed}: {} broken: {broken:#?}",
        broken.len()
    );
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
