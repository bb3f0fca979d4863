//! The ways to stop a run, and how soon each must have ended it.

use std::time::{Duration, Instant};

use crate::support::agreement::ensure;
use crate::support::load::ProcessorWait;
use crate::support::{Ended, FACT_MAX, Running, Signal};

/// The grace of most ways: shorter than the default, so that the tests are too.
const GRACE: Duration = Duration::from_millis(300);

/// Time for force, beyond the grace.
const FORCE_MAX: Duration = Duration::from_secs(1);

/// A run that waited longer for a processor may have had no time for a proof.
pub(super) const STARVED: Duration = Duration::from_millis(100);

/// Time for the exit itself, beyond all that.
const EXIT_MAX: Duration = Duration::from_millis(300);

/// The deadline of the runs that nobody else stops.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Between two signals. Closer together than 100 ms they are taken for one.
const BETWEEN: Duration = Duration::from_millis(150);

/// Interval at which the test looks at the run's progress.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A way to stop a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    CtrlC,
    /// With a grace that would outlast the test.
    CtrlCTwice,
    Sigterm,
    Sighup,
    Timeout,
}

impl Way {
    pub(super) const ALL: [Self; 5] = [
        Self::CtrlC,
        Self::CtrlCTwice,
        Self::Sigterm,
        Self::Sighup,
        Self::Timeout,
    ];

    /// The flags of a run that is stopped so.
    pub(super) fn args(self) -> &'static str {
        match self {
            Self::CtrlC | Self::Sigterm | Self::Sighup => "--grace 300ms",
            Self::CtrlCTwice => "--grace 30s",
            Self::Timeout => "--grace 300ms --timeout 1s",
        }
    }

    /// The exit code and the stop reason of a run that is stopped so.
    pub(super) fn ending(self) -> (i32, &'static str) {
        match self {
            Self::CtrlC | Self::CtrlCTwice => (130, "cancelled"),
            Self::Sigterm => (143, "shutdown"),
            Self::Sighup => (129, "shutdown"),
            Self::Timeout => (124, "timeout"),
        }
    }

    /// The kind and the detail of the cause.
    pub(super) fn cause(self) -> [&'static str; 2] {
        match self {
            Self::CtrlC | Self::CtrlCTwice => ["user", "ctrl-c"],
            Self::Sigterm => ["shutdown", "sigterm"],
            Self::Sighup => ["shutdown", "sighup"],
            Self::Timeout => ["deadline", "run deadline of 1s"],
        }
    }

    /// Stops a run that hangs, and waits for its end. The duration is the time that the run waited for a processor.
    ///
    /// # Errors
    /// It does not end, or too late. The bound counts from the first cause, and from the second Ctrl-C where that cuts the
    /// grace short; what the run waited for a processor is left out.
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
                // A machine that was busy may have seen them as one.
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
