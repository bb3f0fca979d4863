//! Ctrl-Z and `fg`: this process is suspended like any other, and names first the work that is not.
//!
//! Commands of tools have process groups of their own, so the terminal's signal does not reach them: they run on, and so
//! do deadlines. The person is told so, because a stop is answered only after `fg`.

use std::time::Duration;

use allstop_core::receipt::ReceiptItem;
use allstop_session::{Session, StopTarget};
use anyhow::Context as _;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::queue::OutputQueue;
use super::queue_state::OutputPriority;
use super::text::{Style, TextRole, styled};

/// Time that the terminal may take to show the line: what takes longer is shown after `fg`.
const SAID_MAX: Duration = Duration::from_millis(100);

/// A change of the terminal that concerns this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobChange {
    /// Ctrl-Z was pressed.
    Suspend,
    /// The process was resumed, in the foreground or in the background.
    Resumed,
    /// The window has another size.
    Resized,
}

/// Signals of job control and of the window. From its making on, Ctrl-Z suspends nothing by itself.
#[derive(Debug)]
pub(crate) struct JobControl {
    suspend: tokio::signal::unix::Signal,
    resumed: tokio::signal::unix::Signal,
    resized: tokio::signal::unix::Signal,
}

impl JobControl {
    /// Takes the signals over.
    ///
    /// # Errors
    /// If they cannot be listened for.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let of = |kind: Signal| {
            signal(SignalKind::from_raw(kind.as_raw())).context("cannot listen for signals")
        };
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
    pub(crate) async fn next(&mut self) -> JobChange {
        tokio::select! {
            Some(()) = self.suspend.recv() => JobChange::Suspend,
            Some(()) = self.resumed.recv() => JobChange::Resumed,
            Some(()) = self.resized.recv() => JobChange::Resized,
            // The streams end only with the runtime.
            else => std::future::pending().await,
        }
    }
}

/// Suspends this process, once `queue` has said what runs on and `before` is done. After
/// [`JobChange::Resumed`], [`OutputQueue::show_region`] draws the live region again.
pub(crate) fn suspend(
    session: &Session,
    queue: Option<(&OutputQueue, Style)>,
    before: impl FnOnce(),
) {
    suspend_saying(queue, before, || {
        let preview = session.preview(&StopTarget::TurnAndBackground);
        in_words(preview.items())
    });
}

/// The same of a process that only watches.
pub(crate) fn suspend_watch(queue: (&OutputQueue, Style), before: impl FnOnce()) {
    suspend_saying(Some(queue), before, || {
        "suspended; the session goes on · fg watches it again".to_owned()
    });
}

/// The same of a process that runs nothing.
pub(crate) fn suspend_idle(queue: (&OutputQueue, Style), before: impl FnOnce()) {
    suspend_saying(Some(queue), before, || in_words(&[]));
}

fn suspend_saying(
    queue: Option<(&OutputQueue, Style)>,
    before: impl FnOnce(),
    text: impl FnOnce() -> String,
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
    // It is allowed to signal itself.
    let _always = kill_process(getpid(), Signal::STOP);
}

fn in_words(items: &[ReceiptItem]) -> String {
    let has_processes = |item: &&ReceiptItem| item.containment.is_some();
    let name = |item: &ReceiptItem| format!("{} ({})", item.name, item.id);
    let runs_on: Vec<String> = items.iter().filter(has_processes).map(name).collect();
    match runs_on.as_slice() {
        [] => "suspended · fg brings Allstop back".to_owned(),
        _ => format!(
            "suspended · still running, with its deadlines: {} · fg brings Allstop back",
            runs_on.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::receipt::{Containment, ItemKind, ItemState, NotStoppedReason};

    use super::*;

    #[test]
    fn only_what_has_processes_is_named() {
        let state = || ItemState::StillRunning {
            why: NotStoppedReason::NotConfirmed,
        };
        let model = ReceiptItem::new(ItemKind::ModelCall, "step_1", "gpt-x", state());
        let mut shell = ReceiptItem::new(ItemKind::ToolCall, "call_1", "shell", state());
        assert!(!in_words(std::slice::from_ref(&model)).contains("still running"));
        shell.containment = Some(Containment::Keeper);
        assert!(in_words(&[model, shell]).contains("deadlines: shell (call_1) ·"));
    }
}
