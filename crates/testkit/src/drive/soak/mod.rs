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

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allstop_core::ids::SessionId;
use allstop_log::MemoryLog;
use tokio::runtime::Builder;

use crate::check::{self, FailureClass, Invariant, Violation};
use crate::observe::RunObservation;
use crate::random::{self, Random, SEED_VARIABLE};
use crate::report::{CheckReport, Failure};
use retire::KeptSession;

/// Number of sessions at any time.
const SESSIONS: u64 = 12;

/// The part of a soak after which everything that is made once has been made.
const WARM_UP_PART: u64 = 4;

/// Records that a message may cost, everything around it included: a turn of three steps with two calls has a dozen.
const RECORDS_A_MESSAGE_MAX: u64 = 16;

/// Memory that may stay of a message. Everything of it is removed sooner or later, so growth is a leak.
const BYTES_A_MESSAGE_MAX: u64 = 32;

/// Memory that an allocator may take and not give back, whatever is asked of it.
const SLACK_KB: u64 = 8 * 1024;

/// Number of the newest actions that are shown with a failure.
const SHOWN_MAX: usize = 24;

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

/// State that outlives a life.
struct SoakState {
    seed: u64,
    random: Random,
    log: Arc<MemoryLog>,
    /// The clock of a life's scopes, which hold it for as long as there are any.
    clock: Arc<AtomicI64>,
    sessions: Vec<KeptSession>,
    /// Number of sessions made so far.
    made: u64,
    messages: Arc<AtomicU64>,
    actions: u64,
    report: CheckReport,
    done: VecDeque<String>,
}

impl SoakState {
    fn new(seed: u64) -> Self {
        let mut state = Self {
            seed,
            random: Random::new(seed),
            log: Arc::new(MemoryLog::new()),
            clock: Arc::new(AtomicI64::new(0)),
            sessions: Vec::new(),
            made: 0,
            messages: Arc::new(AtomicU64::new(0)),
            actions: 0,
            report: CheckReport::new(&"soak".into(), 0),
            done: VecDeque::new(),
        };
        for _ in 0..SESSIONS {
            let new = state.new_session();
            state.sessions.push(new);
        }
        state
    }

    fn new_session(&mut self) -> KeptSession {
        self.made += 1;
        KeptSession::new(SessionId::new(format!("s_{}", self.made)))
    }

    fn new_message_id(&self) -> impl Fn() -> allstop_core::MessageId + Send + Sync + 'static {
        let newest = Arc::clone(&self.messages);
        move || {
            let number = newest.fetch_add(1, Ordering::Relaxed) + 1;
            allstop_core::MessageId::new(format!("m_{number}"))
        }
    }

    fn did(&mut self, what: String) {
        self.done.push_back(what);
        if self.done.len() > SHOWN_MAX {
            self.done.pop_front();
        }
    }

    /// Applies the checkers to a session that is closed.
    fn observed(&mut self, id: &SessionId, observation: &RunObservation) {
        self.report.count("session", &"soak");
        self.report.checked(observation);
        self.fail(id.to_string(), check::check(observation));
    }

    /// Notes something of a life that is not as it must be.
    fn broken(&mut self, what: String) {
        let violation = Violation {
            checker: "soak",
            invariant: Invariant::NoDetachedWork,
            class: FailureClass::OrphanWork,
            what,
        };
        let life = format!("life {}", self.figure("lives"));
        self.fail(life, vec![violation]);
    }

    fn fail(&mut self, place: String, violations: Vec<Violation>) {
        let replay = format!("{SEED_VARIABLE}={}", self.seed);
        let failure = Failure::of_moment(place, replay, violations);
        self.report.add(failure);
    }

    /// A figure of the report, to change.
    fn figure(&mut self, what: &'static str) -> &mut u64 {
        self.report.figure(what)
    }

    /// Checks that records and memory are in proportion to the messages. `warm`: memory in kB and messages when
    /// everything that is made once had been made.
    fn check_growth(&mut self, warm: Option<(u64, u64)>) {
        let (records, messages) = (
            *self.figure("records"),
            *self.figure("messages of these records"),
        );
        if records > messages * RECORDS_A_MESSAGE_MAX {
            self.broken(format!("{records} records of {messages} messages"));
        }
        // It was over before.
        let Some((warm_kb, warm_messages)) = warm else {
            return;
        };
        let end_kb = resident_kb();
        *self.figure("kB resident when warm") = warm_kb;
        *self.figure("kB resident at the end") = end_kb;
        let messages = *self.figure("messages") - warm_messages;
        let grew_kb = end_kb.saturating_sub(warm_kb);
        if grew_kb > SLACK_KB + messages * BYTES_A_MESSAGE_MAX / 1024 {
            self.broken(format!("{grew_kb} kB more after {messages} messages"));
        }
    }

    /// The report, with what was done last where something was broken.
    fn into_report(mut self) -> CheckReport {
        self.report.points = self.actions as usize;
        if !self.report.is_clean() {
            let done = self.done.iter().map(|done| format!("    {done}"));
            self.report.notes.extend(done);
        }
        let replay = format!("the same again: {SEED_VARIABLE}={}", self.seed);
        self.report.notes.push(replay);
        self.report
    }
}

/// Kilobytes that this process holds resident; 0 where the system does not say.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.unwrap_or_default()
}
