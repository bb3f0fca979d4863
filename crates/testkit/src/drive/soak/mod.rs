//! Simulates days of sessions in minutes: many sessions in one store, with random messages under random policies, stops
//! of random targets, background work, sleeps, crashes and jumps of the clock. The soak runs on a paused clock, and
//! prints the seed that repeats it.
//!
//! The soak is a series of process runs. Each process run is a separate runtime with the scopes of one process. A
//! process run ends in one of two ways: it closes everything, or it crashes, which means that the runtime is dropped at
//! that moment. The next process run continues with the same store. Long sessions are checked, removed and replaced by
//! new ones, so memory must not grow.

mod act;
mod parts;
mod process_run;
mod session_removal;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::random;
use crate::report::CheckReport;
use state::{SoakState, resident_kb};

/// Number of equal parts of a soak. After the first part, all one-time allocations have been made.
const WARM_UP_PART: u64 = 4;

/// Length of a soak.
#[derive(Debug, Clone, Copy)]
pub enum SoakLength {
    /// Until this number of actions is done. The same seed gives the same actions.
    Actions(u64),
    /// For this long in real time.
    Wall(Duration),
}

impl SoakLength {
    /// Number of finished parts. The soak is over when all [`WARM_UP_PART`] parts are finished.
    fn part(self, actions: u64, began: Instant) -> u64 {
        match self {
            Self::Actions(all) => actions * WARM_UP_PART / all.max(1),
            Self::Wall(all) => {
                let part = began.elapsed().as_millis() * u128::from(WARM_UP_PART);
                (part / all.as_millis().max(1)) as u64
            }
        }
    }
}

/// Soak of many sessions: days of use in minutes.
#[derive(Debug)]
#[must_use = "call run"]
pub struct Soak {
    seed: u64,
}

impl Soak {
    /// Uses the seed from the environment variable `ALLSTOP_EXPLORE_SEED`, or a new one.
    ///
    /// # Panics
    /// Panics if the seed in the environment is invalid.
    pub fn from_environment() -> Self {
        Self {
            seed: random::seed(),
        }
    }

    /// Runs the soak. The figures of the report count the actions, and show how many records and how much memory they
    /// needed.
    ///
    /// # Panics
    /// Panics if the system provides no runtime.
    pub fn run(self, length: SoakLength) -> CheckReport {
        let began = Instant::now();
        let mut state = SoakState::new(self.seed);
        let mut warm = None;
        loop {
            let part = length.part(state.actions, began);
            if part >= 1 && warm.is_none() {
                warm = Some((resident_kb(), *state.figure("messages")));
            }
            if part >= WARM_UP_PART || !state.report.is_clean() {
                break;
            }
            *state.figure("lives") += 1;
            let runtime = Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a thread and a timer are all it needs");
            let crashes = runtime.block_on(process_run::play(&mut state));
            if crashes {
                *state.figure("crashes") += 1;
                state.did("crash".to_owned());
            }
            // Dropping the runtime interrupts the running work at an arbitrary point.
            drop(runtime);
            let how = if crashes { "crashed" } else { "ended" };
            let holders = Arc::strong_count(&state.log) - 1;
            if holders > 0 {
                state.broken(format!(
                    "the process {how}, and {holders} parts of it still hold the store"
                ));
            }
            if Arc::strong_count(&state.clock) > 1 {
                state.broken(format!("the process {how}, and its scopes are still there"));
            }
        }
        *state.figure("seconds that it took") = began.elapsed().as_secs();
        state.check_growth(warm);
        state.into_report()
    }
}
