//! Ways to stop a run, with their time limits.

use std::time::{Duration, Instant};

use crate::support::agreement::ensure;
use crate::support::load::ProcessorWait;
use crate::support::{Ended, FACT_MAX, Running, Signal};

/// Grace of most stop methods. It is shorter than the default, to keep the tests short.
const GRACE: Duration = Duration::from_millis(300);

/// Time for force, in addition to the grace.
const FORCE_MAX: Duration = Duration::from_secs(1);

/// If a run waited longer than this time for a processor, it may have too little time to prove the end of its work.
pub(super) const STARVED: Duration = Duration::from_millis(100);

/// Time for the exit itself, in addition to the grace and the time for force.
const EXIT_MAX: Duration = Duration::from_millis(300);

/// Deadline of the runs that only a deadline stops.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between two signals. It must be longer than 100 ms: signals within this time count as one.
const BETWEEN: Duration = Duration::from_millis(150);

/// Interval at which the test checks the run's progress.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A way to stop a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStopMethod {
    CtrlC,
    /// Ctrl-C twice, with a grace longer than the test.
    CtrlCTwice,
    Sigterm,
    Sighup,
    Timeout,
}

impl RunStopMethod {
    pub(super) const ALL: [Self; 5] = [
        Self::CtrlC,
        Self::CtrlCTwice,
        Self::Sigterm,
        Self::Sighup,
        Self::Timeout,
    ];

    /// Flags of a run that is stopped with this method.
    pub(super) fn args(self) -> &'static str {
        match self {
            Self::CtrlC | Self::Sigterm | Self::Sighup => "--grace 300ms",
            Self::CtrlCTwice => "--grace 30s",
            Self::Timeout => "--grace 300ms --timeout 1s",
        }
    }

    /// Expected exit code and expected stop reason of the run.
    pub(super) fn ending(self) -> (i32, &'static str) {
        match self {
            Self::CtrlC | Self::CtrlCTwice => (130, "cancelled"),
            Self::Sigterm => (143, "shutdown"),
            Self::Sighup => (129, "shutdown"),
            Self::Timeout => (124, "timeout"),
        }
    }

    /// Expected kind and detail of the cause in the receipt.
    pub(super) fn cause(self) -> [&'static str; 2] {
        match self {
            Self::CtrlC | Self::CtrlCTwice => ["user", "ctrl-c"],
            Self::Sigterm => ["shutdown", "sigterm"],
            Self::Sighup => ["shutdown", "sighup"],
            Self::Timeout => ["deadline", "run deadline of 1s"],
        }
    }

    /// Stops a hanging run, and waits for its end. Returns the time that the run waited for a processor.
    ///
    /// # Errors
    /// If the run does not end, or ends too late. The limit counts from the first cause. If a second Ctrl-C ends the
    /// grace early, the limit counts from this second Ctrl-C. The time that the run waited for a processor is not
    /// counted.
    #[expect(clippy::print_stdout, reason = "figures for who reads the output")]
    pub(super) fn stop(self, mut running: Running) -> Result<(Ended, Duration), String> {
        let mut wait = ProcessorWait::of(running.pid());
        let mut at = Instant::now();
        let mut bound = GRACE + FORCE_MAX + EXIT_MAX;
        match self {
            Self::CtrlC => drop(running.signal(Signal::INT)),
            Self::Sigterm => drop(running.signal(Signal::TERM)),
            Self::Sighup => drop(running.signal(Signal::HUP)),
            Self::Timeout => at = running.begin() + TIMEOUT,
            Self::CtrlCTwice => {
                running.signal(Signal::INT);
                if !running.ends_within(BETWEEN) {
                    at = Instant::now();
                    bound = FORCE_MAX + EXIT_MAX;
                    running.signal(Signal::INT);
                }
                // On a busy machine, the run may have counted the two signals as one, so send a third signal.
                if !running.ends_within(bound) {
                    running.signal(Signal::INT);
                }
            }
        }
        while !running.ends_within(LOOK_AGAIN) {
            wait.look();
            ensure(at.elapsed() < FACT_MAX, || {
                format!("it has not ended after {FACT_MAX:?}")
            })?;
        }
        wait.look();
        let ended = running.end(FACT_MAX);
        let took = ended.at.saturating_duration_since(at);
        let wait = wait.total();
        println!("{self:?}: {took:?}, {wait:?} of it for want of a processor");
        ensure(took.saturating_sub(wait) <= bound, || {
            format!(
                "it took {took:?}, {wait:?} of it for want of a processor, and had {bound:?}: {ended:#?}"
            )
        })?;
        Ok((ended, wait))
    }
}
