//! Ctrl-Z and `fg`: this process is suspended like any other, after it has shown a last line.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::queue::OutputQueue;
use super::queue_state::OutputPriority;
use super::text::{Style, TextRole, styled};

/// Time that the terminal may take to show the line: what takes longer is shown after `fg`.
const SAID_MAX: Duration = Duration::from_millis(100);

/// A change of the terminal that concerns this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// Ctrl-Z was pressed.
    Suspend,
    /// The process was resumed, in the foreground or in the background.
    Resumed,
    /// The window has another size.
    Resized,
}

/// Signals of job control and of the window. From its making on, Ctrl-Z suspends nothing by itself.
#[derive(Debug)]
pub struct JobControl {
    suspend: tokio::signal::unix::Signal,
    resumed: tokio::signal::unix::Signal,
    resized: tokio::signal::unix::Signal,
}

impl JobControl {
    /// Takes the signals over.
    ///
    /// # Errors
    /// If they cannot be listened for.
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
            // The streams end only with the runtime.
            else => std::future::pending().await,
        }
    }
}

/// Suspends this process, once `queue` has shown `text` and `before` is done. After [`JobChange::Resumed`],
/// [`OutputQueue::show_region`] draws the live region again.
///
/// The first process of a terminal is not suspended, because no shell could resume it.
pub fn suspend(
    queue: Option<(&OutputQueue, Style)>,
    text: impl FnOnce() -> String,
    before: impl FnOnce(),
) {
    // The first process of a terminal has no shell that could bring it back. nix: see `TerminalDevice::is_foreground`.
    if nix::unistd::getsid(None) == Ok(nix::unistd::getpgrp()) {
        return;
    }
    if let Some((queue, style)) = queue {
        let text = queue.fitted(styled![text()]);
        queue.lines(style.paint(TextRole::Dim, text), OutputPriority::Must);
        queue.hide_region();
        queue.settle(SAID_MAX);
    }
    before();
    // A process may signal itself.
    let _always = kill_process(getpid(), Signal::STOP);
}
