//! Stream of the signals that ask the process to end (SIGINT, SIGTERM, SIGHUP), and the signal settings that this
//! process inherits from its parent.

use std::fs;

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};

use crate::control::EndSignal;

/// Signal settings from the parent process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InheritedSignals {
    /// True if the parent process ignores SIGHUP, as `nohup` does. This process and its children then ignore the
    /// signal, too.
    hang_up_is_ignored: bool,
}

impl InheritedSignals {
    /// Unblocks all signals, and reads which ones are ignored. Call this function before any thread starts, because new
    /// threads inherit the signal mask. Child processes do not depend on this call: they are always started with an
    /// empty mask.
    pub(crate) fn take() -> Self {
        // Setting a mask cannot fail, so the result is ignored.
        let _unchanged = SigSet::empty().thread_set_mask();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            hang_up_is_ignored: is_ignored(&status, Signal::SIGHUP),
        }
    }
}

/// True if the text of `/proc/PID/status` lists a signal as ignored.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

/// Stream of the signals that ask the process to end. After the creation of this stream, these signals no longer kill
/// the process by default.
#[derive(Debug)]
pub(crate) struct EndSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: Option<tokio::signal::unix::Signal>,
}

impl EndSignals {
    /// Installs the handlers, except for signals that the parent process ignores.
    pub(crate) fn install(inherited: InheritedSignals) -> anyhow::Result<Self> {
        let of = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hang_up: if inherited.hang_up_is_ignored {
                None
            } else {
                Some(of(SignalKind::hangup())?)
            },
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// Cancel safe: if a signal arrives between two calls, the next call returns it.
    pub(crate) async fn next(&mut self) -> EndSignal {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => None,
            }
        };
        tokio::select! {
            Some(()) = self.interrupt.recv() => EndSignal::Interrupt,
            Some(()) = self.terminate.recv() => EndSignal::Terminate,
            Some(()) = hang_up => EndSignal::HangUp,
            // The streams of the signals end only when the runtime shuts down.
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_are_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, Signal::SIGHUP));
        assert!(!is_ignored(status, Signal::SIGTERM));
        assert!(!is_ignored("", Signal::SIGHUP));
    }
}
