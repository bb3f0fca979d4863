//! Decides on signals, the run's deadline and the end of the process, synchronously and without a runtime. A stop asks
//! the work to end and waits for the grace. Then it uses force: it kills processes and drops futures. The receipt of a
//! stop reports the result.
//!
//! Invariants:
//! 1. The first cause of a stop, such as a signal or the deadline, determines the exit code. Later events do not change
//!    this code.
//! 2. From the first cause on, there is exactly one time at which the process exits. This time is computed once. Every
//!    wait during the shutdown is limited to the time that is left until the exit, and later events can only make the
//!    exit earlier.
//! 3. The signal of Ctrl-\\ begins a stop and forces it at once, as two signals would.
//! 4. A signal during the drain of a server ends the drain: the rest of the work is stopped with the usual grace. The
//!    signal after it uses force.

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind, StopReason};
use allstop_scope::FORCE_MAX;

/// Limit for the response to a second Ctrl-C: a tenth of a second for the force and the receipt of the stop, the rest
/// for output.
const AT_ONCE: Duration = Duration::from_millis(150);

/// Part of the second after the grace that is reserved for output and for the exit itself.
const EXIT_MAX: Duration = Duration::from_millis(150);

/// Time that a stop may take after the grace.
const STOP_MAX: Duration = FORCE_MAX.saturating_sub(EXIT_MAX);

/// Time before the exit at which the remaining work is forced. It is enough for the force and the receipt of the stop.
const LAST_FORCE: Duration = Duration::from_millis(300);

/// Time between the request to end the remaining work and the force of this work.
const LAST_ASK: Duration = Duration::from_millis(300);

/// Exit code of a command that ends because no program reads its stream: 128 and the number of SIGPIPE.
pub(crate) const UNREAD: u8 = 141;

/// Time for output after the exit time is reached.
pub(crate) const OUTPUT_WAIT_LAST: Duration = Duration::from_millis(30);

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal was closed.
    HangUp,
    /// SIGQUIT: Ctrl-\\.
    Quit,
    /// SIGABRT from another process.
    Abort,
    /// SIGALRM.
    Alarm,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

impl EndSignal {
    fn cause(self) -> Cause {
        match self {
            Self::Interrupt => Cause::new(CauseKind::User).detail("ctrl-c"),
            Self::Terminate => Cause::new(CauseKind::Shutdown).detail("sigterm"),
            Self::HangUp => Cause::new(CauseKind::Shutdown).detail("sighup"),
            Self::Quit => Cause::new(CauseKind::Shutdown).detail("sigquit"),
            Self::Abort => Cause::new(CauseKind::Shutdown).detail("sigabrt"),
            Self::Alarm => Cause::new(CauseKind::Shutdown).detail("sigalrm"),
            Self::User1 => Cause::new(CauseKind::Shutdown).detail("sigusr1"),
            Self::User2 => Cause::new(CauseKind::Shutdown).detail("sigusr2"),
        }
        .by("cli")
    }

    /// Exit code of a command that this signal ended: 128 and the number of the signal.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Interrupt => 130,
            Self::Quit => 131,
            Self::Abort => 134,
            Self::User1 => 138,
            Self::User2 => 140,
            Self::Alarm => 142,
            Self::Terminate => 143,
        }
    }
}

/// Signals within this time count as one, because `timeout` and a closing terminal send a signal to the process and
/// then to its group. No user presses Ctrl-C twice in a tenth of a second.
pub(crate) const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// Next step of the process.
#[derive(Debug, PartialEq)]
pub(crate) enum ControlEffect {
    /// No action.
    Nothing,
    /// Stop the work of the process, with this cause.
    Stop(Cause),
    /// Force the running stop, for this cause.
    Force(Cause),
    /// Exit with the results so far.
    Exit,
}

/// State of the process shutdown.
#[derive(Debug)]
pub(crate) struct Control {
    grace: Duration,
    /// Time in which a server lets its work finish before a stop.
    drain: Duration,
    is_draining: bool,
    timeout: Option<Timeout>,
    first: Option<Cause>,
    /// The first signal.
    signalled: Option<EndSignal>,
    last_signal_at: Option<Instant>,
    exit_at: Option<Instant>,
    /// Time of the first signal that asked for force.
    forced_at: Option<Instant>,
    /// Force that follows the stop which a signal has begun.
    force_follows: Option<Cause>,
}

/// Deadline of the whole run.
#[derive(Debug, Clone, Copy)]
struct Timeout {
    limit: Duration,
    at: Instant,
}

impl Control {
    /// State of a process without a stop request.
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            drain: Duration::ZERO,
            is_draining: false,
            timeout: None,
            first: None,
            signalled: None,
            last_signal_at: None,
            exit_at: None,
            forced_at: None,
            force_follows: None,
        }
    }

    /// Sets the grace for stops that begin later.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Sets the time in which a server lets its work finish before a stop.
    pub(crate) fn set_drain(&mut self, drain: Duration) {
        self.drain = drain;
    }

    /// Ends the drain. From here on, the rest of the work has the grace.
    pub(crate) fn end_drain(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_draining) {
            self.exit_by(now.checked_add(self.grace.saturating_add(STOP_MAX)));
        }
    }

    /// The grace of stops.
    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Sets the deadline of the run, which counts from the start of the process. A deadline beyond the range of the
    /// clock is ignored.
    pub(crate) fn set_timeout(&mut self, started: Instant, limit: Option<Duration>) {
        self.timeout = limit.and_then(|limit| {
            let at = started.checked_add(limit)?;
            Some(Timeout { limit, at })
        });
    }

    /// The deadline of the run, and its name in receipts.
    pub(crate) fn deadline(&self) -> Option<(Instant, String)> {
        let Timeout { limit, at } = self.timeout?;
        Some((at, format!("run deadline of {limit:?}")))
    }

    /// Handles a signal.
    pub(crate) fn signal(&mut self, signal: EndSignal, now: Instant) -> ControlEffect {
        let last = self.forced_at.or(self.last_signal_at);
        if last.is_some_and(|at| now < at + ONE_SIGNAL) {
            return ControlEffect::Nothing;
        }
        if signal == EndSignal::Quit {
            self.force_follows = Some(signal.cause());
        }
        if self.is_draining {
            self.last_signal_at = Some(now);
            self.end_drain(now);
            return ControlEffect::Stop(signal.cause());
        }
        if self.exit_at.is_some() {
            // The process is already ending. If this is the first signal, the usual time for force and the receipt
            // remains.
            let limit = if last.is_some() { AT_ONCE } else { STOP_MAX };
            return self.force(signal.cause(), limit, now);
        }
        self.signalled = Some(signal);
        self.last_signal_at = Some(now);
        self.stop(signal.cause(), now)
    }

    /// Returns the force that follows a stop at once, if a signal has asked for it.
    pub(crate) fn follow_up(&mut self, now: Instant) -> Option<ControlEffect> {
        let cause = self.force_follows.take()?;
        Some(self.force(cause, AT_ONCE, now))
    }

    fn force(&mut self, cause: Cause, limit: Duration, now: Instant) -> ControlEffect {
        self.force_follows = None;
        self.exit_by(now.checked_add(limit));
        self.forced_at.get_or_insert(now);
        ControlEffect::Force(cause)
    }

    /// Begins a stop that no signal has requested, such as the stop at the deadline. An earlier cause stays the first
    /// cause.
    pub(crate) fn stop(&mut self, cause: Cause, now: Instant) -> ControlEffect {
        self.end(now);
        self.first.get_or_insert_with(|| cause.clone());
        ControlEffect::Stop(cause)
    }

    /// Begins the regular end of the process, and bounds the rest of the shutdown.
    pub(crate) fn end(&mut self, now: Instant) {
        if self.exit_at.is_none() {
            self.is_draining = !self.drain.is_zero();
            let stop = self.grace.saturating_add(STOP_MAX);
            self.exit_by(now.checked_add(self.drain.saturating_add(stop)));
        }
    }

    /// True if a signal has asked for force. Stops that begin later use force at once.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced_at.is_some()
    }

    /// Time at which the current stop begins to use force.
    pub(crate) fn force_at(&self) -> Option<Instant> {
        self.exit_at?.checked_sub(STOP_MAX)
    }

    /// Times of the last two steps of a shutdown that no further signal shortens. At the first time, the remaining work
    /// is asked to end; at the second, the rest is forced. After each step, there is enough time to observe that the
    /// work has ended.
    pub(crate) fn last_moments(&self) -> Option<(Instant, Instant)> {
        let exit_at = self.exit_at?;
        let force_at = exit_at.checked_sub(LAST_FORCE)?;
        Some((force_at.checked_sub(LAST_ASK)?, force_at))
    }

    fn exit_by(&mut self, at: Option<Instant>) {
        self.exit_at = match (self.exit_at, at) {
            (Some(earlier), Some(at)) => Some(earlier.min(at)),
            (earlier, at) => earlier.or(at),
        };
    }

    /// Time of the next call of [`Control::on_clock`] if no signal arrives.
    pub(crate) fn next_moment(&self) -> Option<Instant> {
        self.exit_at.or(self.timeout.map(|timeout| timeout.at))
    }

    /// Handles the arrival of the time [`Control::next_moment`].
    pub(crate) fn on_clock(&mut self, now: Instant) -> ControlEffect {
        if let Some(at) = self.exit_at {
            return if now >= at {
                ControlEffect::Exit
            } else {
                ControlEffect::Nothing
            };
        }
        match self.deadline() {
            Some((at, detail)) if now >= at => {
                self.stop(Cause::new(CauseKind::Deadline).detail(detail), at)
            }
            _ => ControlEffect::Nothing,
        }
    }

    /// Cause of the stop of the process; `None` if no stop was requested.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.first.as_ref()
    }

    /// Stop reason for a run that was stopped before it reported one.
    pub(crate) fn stop_reason(&self) -> StopReason {
        let reason = self
            .first
            .as_ref()
            .and_then(|cause| cause.kind.stop_reason());
        reason.unwrap_or(StopReason::Cancelled)
    }

    /// Exit code for this reason. The signals that end the process have one stop reason, but different exit codes. A run
    /// whose reader is gone has the code of a command that SIGPIPE killed.
    pub(crate) fn exit_code(&self, reason: StopReason) -> u8 {
        let is_unread = self
            .cause()
            .is_some_and(|cause| cause.kind == CauseKind::Disconnect);
        match (self.signalled, reason) {
            (_, StopReason::Cancelled) if is_unread => UNREAD,
            (Some(signal), StopReason::Shutdown) => signal.exit_code(),
            (_, reason) => reason.exit_code(),
        }
    }

    /// Time until the exit, at least [`OUTPUT_WAIT_LAST`] for output.
    pub(crate) fn time_left(&self, now: Instant) -> Duration {
        let left = self.exit_at.map(|at| at.saturating_duration_since(now));
        left.unwrap_or_default().max(OUTPUT_WAIT_LAST)
    }

    /// Time to wait for output before the exit; `None` if neither a stop nor the run's deadline limits this wait.
    pub(crate) fn output_wait(&self, now: Instant) -> Option<Duration> {
        let until = match &self.first {
            Some(_) => self.exit_at,
            None => self.timeout.map(|timeout| timeout.at),
        };
        let left = until?.saturating_duration_since(now);
        Some(left.max(OUTPUT_WAIT_LAST))
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
        let ControlEffect::Stop(cause) = control.signal(EndSignal::Interrupt, now) else {
            panic!("the first signal stops");
        };
        assert_eq!(cause.to_string(), "user (ctrl-c)");
        assert_eq!(control.next_moment(), Some(now + GRACE + STOP_MAX));
        assert_eq!(
            control.signal(EndSignal::Interrupt, now),
            ControlEffect::Nothing
        );
        let later = now + ONE_SIGNAL;
        let forced = ControlEffect::Force(EndSignal::Terminate.cause());
        assert_eq!(control.signal(EndSignal::Terminate, later), forced);
        assert_eq!(control.next_moment(), Some(later + AT_ONCE));
        assert_eq!(control.on_clock(later), ControlEffect::Nothing);
        assert_eq!(control.on_clock(later + AT_ONCE), ControlEffect::Exit);
    }

    #[test]
    fn ctrl_backslash_stops_and_forces_at_once() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        let stop = control.signal(EndSignal::Quit, now);
        assert_eq!(stop, ControlEffect::Stop(EndSignal::Quit.cause()));
        let force = ControlEffect::Force(EndSignal::Quit.cause());
        assert_eq!(control.follow_up(now), Some(force));
        assert_eq!(control.follow_up(now), None);
        assert_eq!(control.next_moment(), Some(now + AT_ONCE));
        assert_eq!(control.exit_code(control.stop_reason()), 131);
    }

    #[test]
    fn the_second_signal_ends_a_drain_and_the_third_forces() {
        let drain = Duration::from_secs(30);
        let mut control = Control::new(GRACE);
        control.set_drain(drain);
        let now = Instant::now();
        control.signal(EndSignal::HangUp, now);
        assert_eq!(control.next_moment(), Some(now + drain + GRACE + STOP_MAX));
        let second = now + drain / 2;
        let effect = control.signal(EndSignal::Terminate, second);
        assert_eq!(effect, ControlEffect::Stop(EndSignal::Terminate.cause()));
        assert_eq!(control.next_moment(), Some(second + GRACE + STOP_MAX));
        assert!(!control.is_forced());
        let same = control.signal(EndSignal::Terminate, second + ONE_SIGNAL / 2);
        assert_eq!(same, ControlEffect::Nothing);
        let third = second + ONE_SIGNAL;
        let effect = control.signal(EndSignal::Terminate, third);
        assert!(matches!(effect, ControlEffect::Force(_)), "{effect:?}");
        assert_eq!(control.next_moment(), Some(third + AT_ONCE));
        assert_eq!(control.exit_code(control.stop_reason()), 129);
    }

    #[test]
    fn after_a_drain_the_second_signal_forces() {
        let mut control = Control::new(GRACE);
        control.set_drain(Duration::from_secs(30));
        let now = Instant::now();
        control.signal(EndSignal::Terminate, now);
        let drained = now + Duration::from_secs(1);
        control.end_drain(drained);
        assert_eq!(control.next_moment(), Some(drained + GRACE + STOP_MAX));
        let effect = control.signal(EndSignal::Terminate, drained);
        assert!(matches!(effect, ControlEffect::Force(_)), "{effect:?}");
    }

    #[test]
    fn the_first_cause_decides_the_exit_code() {
        let now = Instant::now();
        for (first, second, code) in [
            (EndSignal::Interrupt, EndSignal::Terminate, 130),
            (EndSignal::Terminate, EndSignal::Interrupt, 143),
            (EndSignal::HangUp, EndSignal::Terminate, 129),
        ] {
            let mut control = Control::new(GRACE);
            control.signal(first, now);
            control.signal(second, now + ONE_SIGNAL);
            assert_eq!(control.exit_code(control.stop_reason()), code);
        }
        assert_eq!(Control::new(GRACE).exit_code(StopReason::Timeout), 124);
    }

    #[test]
    fn a_stop_without_a_reader_has_the_code_of_sigpipe() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        control.stop(Cause::new(CauseKind::Disconnect), now);
        assert_eq!(control.exit_code(control.stop_reason()), 141);
        control.signal(EndSignal::Interrupt, now + ONE_SIGNAL);
        assert_eq!(control.exit_code(control.stop_reason()), 141);
    }

    #[test]
    fn the_deadline_is_a_first_cause_and_a_later_signal_forces() {
        let now = Instant::now();
        let mut control = Control::new(GRACE);
        control.set_timeout(now, Some(Duration::from_secs(1)));
        let at = now + Duration::from_secs(1);
        assert_eq!(control.next_moment(), Some(at));
        // The time counts from the deadline, even if the clock is read late.
        let ControlEffect::Stop(cause) = control.on_clock(at + Duration::from_millis(40)) else {
            panic!("the deadline stops");
        };
        assert_eq!(cause.to_string(), "deadline (run deadline of 1s)");
        assert_eq!(control.next_moment(), Some(at + GRACE + STOP_MAX));
        let signal = control.signal(EndSignal::Interrupt, at + Duration::from_millis(50));
        assert!(matches!(signal, ControlEffect::Force(_)), "{signal:?}");
        assert_eq!(control.exit_code(control.stop_reason()), 124);
    }

    #[test]
    fn a_deadline_beyond_the_clock_is_none() {
        let mut control = Control::new(Duration::MAX);
        control.set_timeout(Instant::now(), Some(Duration::MAX));
        assert_eq!(control.next_moment(), None);
        control.signal(EndSignal::Interrupt, Instant::now());
        assert_eq!(control.next_moment(), None);
        let later = Instant::now() + ONE_SIGNAL;
        control.signal(EndSignal::Interrupt, later);
        assert!(control.cause().is_some());
    }

    #[test]
    fn a_late_signal_never_gives_more_time() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        control.signal(EndSignal::Interrupt, now);
        let later = now + GRACE + Duration::from_millis(800);
        control.signal(EndSignal::Interrupt, later);
        assert_eq!(control.next_moment(), Some(now + GRACE + STOP_MAX));
        control.end(later);
        assert_eq!(control.next_moment(), Some(now + GRACE + STOP_MAX));
    }

    #[test]
    fn the_end_by_itself_is_bounded_and_no_cause() {
        let mut control = Control::new(GRACE);
        let now = Instant::now();
        control.end(now);
        assert_eq!(control.next_moment(), Some(now + GRACE + STOP_MAX));
        assert_eq!(control.cause(), None);
        assert_eq!(control.output_wait(now), None);
        let signal = control.signal(EndSignal::Interrupt, now);
        assert!(matches!(signal, ControlEffect::Force(_)), "{signal:?}");
        assert_eq!(control.next_moment(), Some(now + STOP_MAX));
        let same = control.signal(EndSignal::Terminate, now + ONE_SIGNAL / 2);
        assert_eq!(same, ControlEffect::Nothing);
        let later = now + ONE_SIGNAL;
        let signal = control.signal(EndSignal::Interrupt, later);
        assert!(matches!(signal, ControlEffect::Force(_)), "{signal:?}");
        assert_eq!(control.next_moment(), Some(later + AT_ONCE));
    }
}
