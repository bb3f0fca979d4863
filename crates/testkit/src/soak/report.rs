//! What a soak came to.

use std::fmt;
use std::time::Duration;

use crate::random_stops::SEED_VARIABLE;

/// Records that a message may cost, everything around it included: a turn of three steps with two calls has a dozen.
const RECORDS_A_MESSAGE_MAX: u64 = 16;

/// What may stay of a message in memory. Everything of it is removed sooner or later, so what grows is what leaks.
const BYTES_A_MESSAGE_MAX: u64 = 32;

/// What an allocator may take and not give back, whatever is asked of it.
const SLACK_KB: u64 = 8 * 1024;

/// What a soak came to.
#[derive(Debug, Clone, Default)]
#[must_use = "assert that it is clean"]
pub struct SoakReport {
    /// For having the same again.
    pub seed: u64,
    /// How much was done.
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
    /// How many of those ended by a crash.
    pub crashes: u64,
    /// How often hours passed at once.
    pub jumps: u64,
    /// Sessions that were checked and removed.
    pub sessions: u64,
    /// Records of those.
    pub records: u64,
    /// Messages of those.
    pub messages_of_records: u64,
    /// How much time of the paused clock has passed.
    pub simulated: Duration,
    /// How much of the wall's.
    pub took: Duration,
    /// Resident memory when everything had been warmed up.
    pub rss_warm_kb: u64,
    /// Messages by then.
    pub messages_warm: u64,
    /// Resident memory at the end.
    pub rss_end_kb: u64,
    /// What was broken.
    pub violations: Vec<String>,
    /// What was done last.
    pub shown: Vec<String>,
}

impl SoakReport {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Records for each message.
    pub fn records_a_message(&self) -> f64 {
        self.records as f64 / self.messages_of_records.max(1) as f64
    }

    /// What is out of proportion to the messages.
    fn out_of_proportion(&self) -> Option<String> {
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

    /// Prints what was done.
    ///
    /// # Panics
    /// If anything was broken, or grew out of proportion: with the seed.
    #[expect(
        clippy::print_stdout,
        reason = "a test says how much it has done, where tests say things"
    )]
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
        print!("{self}");
    }

    /// Whether nothing was broken, and nothing grew.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.out_of_proportion().is_none()
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "soak: {:.1} h ({} jumps) in {:.1} s, {} messages ({} refused), {} stops, {} taken back, {} compacted, {} lives, {} \
             crashes",
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
        )?;
        writeln!(
            f,
            "{} messages for agents of its own, {} calls cancelled alone, {} sent to the background, {} commands let go",
            self.divided, self.cancelled_alone, self.promoted, self.let_go
        )?;
        writeln!(
            f,
            "{} sessions checked, {} records, {:.2} a message; resident {} kB when warm, {} kB at the end",
            self.sessions,
            self.records,
            self.records_a_message(),
            self.rss_warm_kb,
            self.rss_end_kb
        )?;
        writeln!(f, "have the same again: {SEED_VARIABLE}={}", self.seed)?;
        for violation in self.violations.iter().chain(&self.out_of_proportion()) {
            writeln!(f, "broken: {violation}")?;
        }
        for done in &self.shown {
            writeln!(f, "    {done}")?;
        }
        Ok(())
    }
}
