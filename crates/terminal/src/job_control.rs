//! Ctrl-Z and `fg`: suspends this process after it has shown a last line.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::queue::OutputQueue;
use super::queue_state::OutputPriority;
use super::text::{Style, TextRole, styled};

/// Maximum wait for the terminal to show the line. If the terminal takes longer, the line appears after `fg`.
const SAID_MAX: Duration = Duration::from_millis(100);

/// A change of the terminal that concerns this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// Ctrl-Z was pressed.
    Suspend,
    /// The process was resumed, in the foreground or in the background.
    Resumed,
    /// The size of the window has changed.
    Resized,
}

/// Signals of job control and of the window. After the creation of this value, Ctrl-Z no longer suspends the process:
/// the receiver of [`JobChange::Suspend`] calls [`suspend`].
#[derive(Debug)]
pub struct JobControl {
    suspend: tokio::signal::unix::Signal,
    resumed: tokio::signal::unix::Signal,
    resized: tokio::signal::unix::Signal,
}

impl JobControl {
    /// Installs handlers for the signals.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let of = |kind: Signal| signal(SignalKind::from_raw(kind.as_raw()));
        Ok(Self {
            suspend: of(Signal::TSTP)?,
            resumed: of(Signal::CONT)?,
            resized: of(Signal::WINCH)?,
        })
    }

    /// The next change.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> JobChange {
        tokio::select! {
            Some(()) = self.suspend.recv() => JobChange::Suspend,
            Some(()) = self.resumed.recv() => JobChange::Resumed,
            Some(()) = self.resized.recv() => JobChange::Resized,
            // The streams of signals end only with the runtime.
            else => std::future::pending().await,
        }
    }
}

/// Suspends this process after `queue` has shown the text and `before` has returned. After [`JobChange::Resumed`],
/// [`OutputQueue::show_region`] draws the live region again.
///
/// The first process of a terminal is not suspended, because no shell could resume it.
pub fn suspend(
    queue: Option<(&OutputQueue, Style)>,
    text: impl FnOnce() -> String,
    before: impl FnOnce(),
) {
    // This call uses nix instead of rustix. The reason is explained in `TerminalDevice::is_foreground`.
    if nix::unistd::getsid(None) == Ok(nix::unistd::getpgrp()) {
        return;
    }
    if let Some((queue, style)) = queue {
        let text = queue.fitted(styled![text()]);
        queue.lines(style.paint(TextRole::Dim, text), OutputPriority::Required);
        queue.hide_region();
        queue.settle(SAID_MAX);
    }
    before();
    // Cannot fail, because a process may send a signal to itself.
    let _always = kill_process(getpid(), Signal::STOP);
}
