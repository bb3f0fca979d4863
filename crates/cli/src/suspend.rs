//! Ctrl-Z: first prints the work that keeps running, then suspends the process.
//!
//! Commands of tools run in separate process groups, which the terminal's suspend signal does not reach. So the
//! commands keep running, and their deadlines keep counting. The suspended process itself handles a stop only after
//! `fg`, so the message names this work to the user.

use allstop_core::receipt::ReceiptItem;
use allstop_session::{Session, StopTarget};
use allstop_terminal::{JobControl, OutputQueue, Style, suspend};
use anyhow::Context as _;

/// Installs handlers for job control signals and window size changes.
///
/// # Errors
/// If the handlers cannot be installed.
pub(crate) fn job_control() -> anyhow::Result<JobControl> {
    JobControl::install().context("cannot listen for signals")
}

/// Suspends a process that runs a session. Calls `before` first.
pub(crate) fn suspend_session(
    session: &Session,
    queue: Option<(&OutputQueue, Style)>,
    before: impl FnOnce(),
) {
    let text = || {
        let preview = session.preview(&StopTarget::TurnAndBackground);
        describe_suspension(preview.items())
    };
    suspend(queue, text, before);
}

/// Suspends a process that only watches.
pub(crate) fn suspend_watch(queue: (&OutputQueue, Style), before: impl FnOnce()) {
    let text = || "suspended; the session keeps running · `fg` resumes watching".to_owned();
    suspend(Some(queue), text, before);
}

/// Suspends a process while another program has its terminal.
pub(crate) fn suspend_silently() {
    suspend(None, String::new, || {});
}

/// Suspends a process that runs no work.
pub(crate) fn suspend_idle(queue: (&OutputQueue, Style), before: impl FnOnce()) {
    suspend(Some(queue), || describe_suspension(&[]), before);
}

fn describe_suspension(items: &[ReceiptItem]) -> String {
    let has_processes = |item: &&ReceiptItem| item.containment.is_some();
    let name = |item: &ReceiptItem| format!("{} ({})", item.name, item.id);
    let runs_on: Vec<String> = items.iter().filter(has_processes).map(name).collect();
    match runs_on.as_slice() {
        [] => "suspended · `fg` resumes Allstop".to_owned(),
        _ => format!(
            "suspended · still running, with deadlines: {} · `fg` resumes Allstop",
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
        assert!(!describe_suspension(std::slice::from_ref(&model)).contains("still running"));
        shell.containment = Some(Containment::Keeper);
        assert!(describe_suspension(&[model, shell]).contains("deadlines: shell (call_1) ·"));
    }
}
