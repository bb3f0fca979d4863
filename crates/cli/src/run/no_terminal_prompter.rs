//! Prompter, which answers permission questions, of a run without a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_tools::permission::{PermissionAnswer, PermissionQuestion, Prompter};
use futures::future::BoxFuture;

/// Leaves every question unanswered, and remembers if a question was asked. Clones share this fact.
#[derive(Debug, Clone, Default)]
pub(super) struct NoTerminalPrompter {
    was_asked: Arc<AtomicBool>,
}

impl NoTerminalPrompter {
    /// True if a question was asked and `--yes` would have allowed its call.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }
}

impl Prompter for NoTerminalPrompter {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        // A question with a doubt is not counted: it is uncertain if a rule denies the call, so `--yes` would not allow
        // it.
        if question.doubt.is_none() {
            self.was_asked.store(true, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(PermissionAnswer::Unanswered))
    }
}
