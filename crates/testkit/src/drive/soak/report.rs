//! Figures and failures of a soak.

use std::collections::VecDeque;
use std::time::Duration;

use crate::drive::random::SEED_VARIABLE;
use crate::report::CheckReport;

/// Records that a message may cost, everything around it included: a turn of three steps with two calls has a dozen.
const RECORDS_A_MESSAGE_MAX: u64 = 16;

/// Memory that may stay of a message. Everything of it is removed sooner or later, so growth is a leak.
const BYTES_A_MESSAGE_MAX: u64 = 32;

/// Memory that an allocator may take and not give back, whatever is asked of it.
const SLACK_KB: u64 = 8 * 1024;

/// Figures and failures of a soak.
#[derive(Debug, Clone, Default)]
#[must_use = "assert that it is clean"]
pub struct SoakReport {
    /// Failures, and the figures below in words.
    pub checks: CheckReport,
    /// Number of actions.
    pub actions: u64,
    /// Messages that were taken.
    pub messages: u64,
    /// Messages that were not.
    pub refused: u64,
    /// Stops that were asked for.
    pub stops: u64,
    /// Calls that were cancelled while others ran beside them.
    pub cancelled_alone: u64,
    /// Calls that were sent to the background.
    pub promoted: u64,
    /// Background work that was let go.
    pub let_go: u64,
    /// Messages whose work agents of the agent's own do.
    pub divided: u64,
    /// Turns that were taken back.
    pub undone: u64,
    /// Summaries that were asked for and made; more are made by themselves.
    pub compacted: u64,
    /// Processes that there were.
    pub lives: u64,
    /// Processes of those that ended by a crash.
    pub crashes: u64,
    /// Times that hours passed at once.
    pub jumps: u64,
    /// Sessions that were checked and removed.
    pub sessions: u64,
    /// Records of those.
    pub records: u64,
    /// Messages of those.
    pub messages_of_records: u64,
    /// Time that has passed on the paused clock.
    pub simulated: Duration,
    /// Time that has passed on the clock of the wall.
    pub took: Duration,
    /// Resident memory when everything had been warmed up.
    pub rss_warm_kb: u64,
    /// Messages by then.
    pub messages_warm: u64,
    /// Resident memory at the end.
    pub rss_end_kb: u64,
}

impl SoakReport {
    /// Records for each message.
    pub fn records_a_message(&self) -> f64 {
        self.records as f64 / self.messages_of_records.max(1) as f64
    }

    /// Growth that is out of proportion to the messages.
    pub(super) fn out_of_proportion(&self) -> Option<String> {
        if self.records > self.messages_of_records * RECORDS_A_MESSAGE_MAX {
            return Some(format!("{:.1} records a message", self.records_a_message()));
        }
        if self.rss_warm_kb == 0 {
            // It was over before.
            return None;
        }
        let messages = self.messages - self.messages_warm;
        let may_grow_kb = SLACK_KB + messages * BYTES_A_MESSAGE_MAX / 1024;
        let grew_kb = self.rss_end_kb.saturating_sub(self.rss_warm_kb);
        (grew_kb > may_grow_kb).then(|| format!("{grew_kb} kB more after {messages} messages"))
    }

    /// Puts the figures into the report, and what was done last where something was broken.
    pub(super) fn note(&mut self, seed: u64, done: VecDeque<String>) {
        self.checks.scenario = "soak".into();
        self.checks.points = self.actions as usize;
        self.checks.notes = vec![
            format!(
                "{:.1} h ({} jumps) in {:.1} s, {} messages ({} refused), {} stops, {} taken back, {} compacted, {} lives, {} crashes",
                self.simulated.as_secs_f64() / 3600.0,
                self.jumps,
                self.took.as_secs_f64(),
                self.messages,
                self.refused,
                self.stops,
                self.undone,
                self.compacted,
                self.lives,
                self.crashes
            ),
            format!(
                "{} messages for sub-agents, {} calls cancelled alone, {} sent to the background, {} commands detached",
                self.divided, self.cancelled_alone, self.promoted, self.let_go
            ),
            format!(
                "{} sessions checked, {} records, {:.2} a message; resident {} kB when warm, {} kB at the end",
                self.sessions,
                self.records,
                self.records_a_message(),
                self.rss_warm_kb,
                self.rss_end_kb
            ),
            format!("the same again: {SEED_VARIABLE}={seed}"),
        ];
        if !self.checks.is_clean() {
            let done = done.into_iter().map(|done| format!("    {done}"));
            self.checks.notes.extend(done);
        }
    }
}
