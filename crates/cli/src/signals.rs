//! Stream of the signals that end a process by default, and the signal settings that this process inherits from its parent.
//!
//! If such a signal had its default action, it would leave the terminal in the mode of the chat, and no receipt.

use std::fs;

use anyhow::Context as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
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
    others: Vec<(EndSignal, tokio::signal::unix::Signal)>,
}

/// The other signals that end a process by default, and that people or programs send.
const OTHERS: [(EndSignal, Signal); 5] = [
    (EndSignal::Quit, Signal::SIGQUIT),
    (EndSignal::Abort, Signal::SIGABRT),
    (EndSignal::Alarm, Signal::SIGALRM),
    (EndSignal::User1, Signal::SIGUSR1),
    (EndSignal::User2, Signal::SIGUSR2),
];

impl EndSignals {
    /// Installs the handlers, except for signals that the parent process ignores.
    pub(crate) fn install(inherited: InheritedSignals) -> anyhow::Result<Self> {
        let of = |kind| signal(kind).context("cannot listen for signals");
        let mut others = Vec::with_capacity(OTHERS.len());
        for (end, number) in OTHERS {
            others.push((end, of(SignalKind::from_raw(number as i32))?));
        }
        Ok(Self {
            others,
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
        let mut others: FuturesUnordered<_> = self
            .others
            .iter_mut()
            .map(async |(end, signal)| signal.recv().await.map(|()| *end))
            .collect();
        let other = async { others.next().await.flatten() };
        tokio::select! {
            Some(()) = self.interrupt.recv() => EndSignal::Interrupt,
            Some(()) = self.terminate.recv() => EndSignal::Terminate,
            Some(()) = hang_up => EndSignal::HangUp,
            Some(end) = other => end,
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
