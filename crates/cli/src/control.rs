//! What a run does about signals and endings: decided here, synchronously, without a runtime.
//!
//! Invariants:
//! 1. The first cause decides the exit code, whatever follows.
//! 2. From the first stop on there is a last moment, and each further event only brings it nearer.

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind, StopReason};
use allstop_scope::FORCE_MAX;

/// A second Ctrl-C is answered within this: a tenth of a second for the force and its account, the rest for output.
const AT_ONCE: Duration = Duration::from_millis(150);

/// What is left of the last second for output and for the exit itself.
const EXIT_MAX: Duration = Duration::from_millis(150);

/// How long after the grace a stop may take.
const STOP_MAX: Duration = FORCE_MAX.saturating_sub(EXIT_MAX);

/// A signal that ends runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

impl Signal {
    fn cause(self) -> Cause {
        match self {
            Self::Interrupt => Cause::new(CauseKind::User).detail("ctrl-c"),
            Self::Terminate => Cause::new(CauseKind::Shutdown).detail("sigterm"),
            Self::HangUp => Cause::new(CauseKind::Shutdown).detail("sighup"),
        }
        .by("cli")
    }
}

/// Signals so close together are one: `timeout` and a closing terminal signal the process and then its group. Nobody
/// presses a key twice in a tenth of a second.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// What the run does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Nothing new.
    Nothing,
    /// Stop, with this cause.
    Stop(Cause),
    /// Force what is being stopped.
    Force,
}

/// How far a run is.
#[derive(Debug)]
pub(crate) struct Control {
    grace: Duration,
    first: Option<Signal>,
    first_at: Option<Instant>,
    last_moment: Option<Instant>,
}

impl Control {
    /// A run that nobody has stopped.
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            first: None,
            first_at: None,
            last_moment: None,
        }
    }

    /// A signal came.
    pub(crate) fn signal(&mut self, signal: Signal, now: Instant) -> Effect {
        if self.first_at.is_some_and(|first| now < first + ONE_SIGNAL) {
            return Effect::Nothing;
        }
        if self.first.is_some() {
            self.end_by(now + AT_ONCE);
            return Effect::Force;
        }
        self.first = Some(signal);
        self.first_at = Some(now);
        self.stopping(now);
        Effect::Stop(signal.cause())
    }

    /// A stop that nobody asked for by a signal begins, such as of background work at the end: it is bounded too.
    pub(crate) fn stopping(&mut self, now: Instant) {
        self.end_by(now + self.grace + STOP_MAX);
    }

    fn end_by(&mut self, at: Instant) {
        self.last_moment = Some(self.last_moment.map_or(at, |earlier| earlier.min(at)));
    }

    /// When the process exits, whatever is still open.
    pub(crate) fn last_moment(&self) -> Option<Instant> {
        self.last_moment
    }

    /// The stop reason of a run that was stopped before it could say one.
    pub(crate) fn stop_reason(&self) -> StopReason {
        match self.first {
            None | Some(Signal::Interrupt) => StopReason::Cancelled,
            Some(Signal::Terminate | Signal::HangUp) => StopReason::Shutdown,
        }
    }

    /// The exit code for this reason. SIGHUP shares its reason with SIGTERM, and has a code of its own.
    pub(crate) fn exit_code(&self, reason: StopReason) -> u8 {
        match (self.first, reason) {
            (Some(Signal::HangUp), StopReason::Shutdown) => 129,
            (_, reason) => reason.exit_code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    #[test]
    fn the_first_signal_stops_and_the_second_forces() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        let Effect::Stop(cause) = control.signal(Signal::Interrupt, now) else {
            panic!("the first signal stops");
        };
        assert_eq!(cause.to_string(), "user (ctrl-c)");
        assert_eq!(control.last_moment(), Some(now + GRACE + STOP_MAX));
        assert_eq!(control.signal(Signal::Interrupt, now), Effect::Nothing);
        let later = now + ONE_SIGNAL;
        assert_eq!(control.signal(Signal::Terminate, later), Effect::Force);
        assert_eq!(control.last_moment(), Some(later + AT_ONCE));
    }

    #[test]
    fn the_first_cause_decides_the_exit_code() {
        let now = Instant::now();
        for (first, second, code) in [
            (Signal::Interrupt, Signal::Terminate, 130),
            (Signal::Terminate, Signal::Interrupt, 143),
            (Signal::HangUp, Signal::Terminate, 129),
        ] {
            let mut control = Control::new(GRACE);
            control.signal(first, now);
            control.signal(second, now + ONE_SIGNAL);
            assert_eq!(control.exit_code(control.stop_reason()), code);
        }
        assert_eq!(Control::new(GRACE).exit_code(StopReason::Timeout), 124);
    }

    #[test]
    fn a_late_signal_never_gives_more_time() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        control.signal(Signal::Interrupt, now);
        let later = now + GRACE + Duration::from_millis(800);
        control.signal(Signal::Interrupt, later);
        assert_eq!(control.last_moment(), Some(now + GRACE + STOP_MAX));
        control.stopping(later);
        assert_eq!(control.last_moment(), Some(now + GRACE + STOP_MAX));
    }
}
