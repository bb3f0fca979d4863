//! Days of sessions in minutes: many of them over one store, random messages under random policies, stops of random
//! targets, background work, sleeps, crashes and jumps of the clock, on paused time and with a printed seed.
//!
//! The run is a row of lives. Each is a runtime of its own with a process's scopes in it; it ends by closing
//! everything, or by a crash: the runtime is dropped as it stands. The next life goes on with the same store. Sessions
//! that have become long are checked, removed and followed by new ones, so that what stays in memory must not grow.

mod act;
mod life;
mod parts;
mod retire;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::random;
use crate::report::CheckReport;
use state::{SoakState, resident_kb};

/// The part of a soak after which everything that is made once has been made.
const WARM_UP_PART: u64 = 4;

/// Length of a soak.
#[derive(Debug, Clone, Copy)]
pub enum SoakLength {
    /// Until this much has been done: the same for the same seed.
    Actions(u64),
    /// For this long, by the clock of the wall.
    Wall(Duration),
}

impl SoakLength {
    /// Progress, in parts of [`WARM_UP_PART`]; past that the soak is over.
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

/// Days of sessions in minutes.
#[derive(Debug)]
#[must_use = "call run"]
pub struct Soak {
    seed: u64,
}

impl Soak {
    /// With the seed that the environment names (`ALLSTOP_EXPLORE_SEED`), or a new one.
    ///
    /// # Panics
    /// If the environment names something that is none.
    pub fn from_environment() -> Self {
        Self {
            seed: random::seed(),
        }
    }

    /// Runs it. The figures of the report count everything that was done, and what it took.
    ///
    /// # Panics
    /// If the system gives no runtime.
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
            let crashes = runtime.block_on(life::live(&mut state));
            if crashes {
                *state.figure("crashes") += 1;
                state.did("crash".to_owned());
            }
            // Whatever runs is gone in the middle of what it does.
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
