//! State of a soak across process runs: sessions, figures and findings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use allstop_core::ids::SessionId;
use allstop_log::MemoryLog;

use super::session_removal::KeptSession;
use crate::check::{self, FailureClass, Invariant, Violation};
use crate::observe::RunObservation;
use crate::random::{Random, SEED_VARIABLE};
use crate::report::{CheckReport, Failure};

/// Number of sessions at any time.
const SESSIONS: u64 = 12;

/// Maximum number of records per message. This number includes all records of the session that do not belong to a turn.
/// A turn of three steps with two calls has a dozen records.
const RECORDS_A_MESSAGE_MAX: u64 = 16;

/// Maximum memory in bytes that may remain per message. All data of a message is removed sooner or later, so growth
/// above this limit is a leak.
const BYTES_A_MESSAGE_MAX: u64 = 32;

/// Memory in kB that the allocator may keep.
const SLACK_KB: u64 = 8 * 1024;

/// Number of last actions in the report of a failure.
const SHOWN_MAX: usize = 24;

/// State that exists across process runs.
pub(super) struct SoakState {
    seed: u64,
    pub(super) random: Random,
    pub(super) log: Arc<MemoryLog>,
    /// The clock of all scopes of a process run. Each scope holds a reference to this clock.
    pub(super) clock: Arc<AtomicI64>,
    pub(super) sessions: Vec<KeptSession>,
    /// Number of sessions created so far.
    made: u64,
    messages: Arc<AtomicU64>,
    pub(super) actions: u64,
    pub(super) report: CheckReport,
    done: VecDeque<String>,
}

impl SoakState {
    pub(super) fn new(seed: u64) -> Self {
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

    pub(super) fn new_session(&mut self) -> KeptSession {
        self.made += 1;
        KeptSession::new(SessionId::new(format!("s_{}", self.made)))
    }

    pub(super) fn new_message_id(
        &self,
    ) -> impl Fn() -> allstop_core::MessageId + Send + Sync + 'static {
        let newest = Arc::clone(&self.messages);
        move || {
            let number = newest.fetch_add(1, Ordering::Relaxed) + 1;
            allstop_core::MessageId::new(format!("m_{number}"))
        }
    }

    pub(super) fn did(&mut self, what: String) {
        self.done.push_back(what);
        if self.done.len() > SHOWN_MAX {
            self.done.pop_front();
        }
    }

    /// Applies the checkers to a closed session.
    pub(super) fn observed(&mut self, id: &SessionId, observation: &RunObservation) {
        self.report.count("session", &"soak");
        self.report.checked(observation);
        self.fail(id.to_string(), check::check(observation));
    }

    /// Records a failure of a process run.
    pub(super) fn broken(&mut self, what: String) {
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

    /// Mutable access to a figure of the report.
    pub(super) fn figure(&mut self, what: &'static str) -> &mut u64 {
        self.report.figure(what)
    }

    /// Checks that the number of records and the memory are in proportion to the number of messages. `warm` is the
    /// memory in kB and the number of messages at the time when all one-time allocations were complete.
    pub(super) fn check_growth(&mut self, warm: Option<(u64, u64)>) {
        let (records, messages) = (
            *self.figure("records"),
            *self.figure("messages of these records"),
        );
        if records > messages * RECORDS_A_MESSAGE_MAX {
            self.broken(format!("{records} records of {messages} messages"));
        }
        // The soak ended before the one-time allocations were complete.
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

    /// The report. After a failure, the report lists the last actions.
    pub(super) fn into_report(mut self) -> CheckReport {
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

/// Resident kilobytes of this process; 0 if the system does not report them.
pub(super) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.unwrap_or_default()
}
