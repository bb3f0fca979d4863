//! Prompter of a run without a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_tools::permission::{PermissionAnswer, PermissionQuestion, Prompter};
use futures::future::BoxFuture;

/// Leaves every question unanswered, and remembers that one was asked. Clones share this memory.
#[derive(Debug, Clone, Default)]
pub(super) struct NoTerminalPrompter {
    was_asked: Arc<AtomicBool>,
}

impl NoTerminalPrompter {
    /// True if a question was asked that `--yes` would have answered.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }
}

impl Prompter for NoTerminalPrompter {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        // If a denying rule may cover the call, `--yes` would not allow the call, so this question is not recorded.
        if question.doubt.is_none() {
            self.was_asked.store(true, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(PermissionAnswer::Unanswered))
    }
}
