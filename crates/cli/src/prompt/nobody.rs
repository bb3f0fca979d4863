//! Where there is nobody to ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_tools::permission::{Answer, Prompter, Question};
use futures::future::BoxFuture;

/// Says that nobody is there, and remembers that it was asked. Its copies remember together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nobody {
    was_asked: Arc<AtomicBool>,
}

impl Nobody {
    /// Whether there was a question that nobody could answer.
    pub(crate) fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }
}

impl Prompter for Nobody {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Answer> {
        self.was_asked.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Answer::Unanswered))
    }
}
