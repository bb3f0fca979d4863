//! Durable records of the calls that a sub-agent makes, in the log of the turn that waits for the sub-agent.

use std::sync::Arc;

use allstop_core::CallId;
use allstop_core::record::{CallOutcome, StartedCall};
use allstop_core::turn::Conversation;
use futures::future::BoxFuture;

/// Records of the calls that a sub-agent makes. The turn that waits for the sub-agent writes the records to its log, so
/// that the effects of these calls are known after a crash, a stop or a rollback.
pub trait CallJournal: Send + Sync {
    /// Records the starts of these calls. The future resolves when the records are durable.
    ///
    /// # Errors
    /// If the turn has ended, or cannot write the records. If the turn still waits for the sub-agent, a stop follows, and
    /// the calls must not run.
    ///
    /// # Cancel safety
    /// If the future is dropped, the records may have been written.
    fn begin(&self, calls: Vec<StartedCall>) -> BoxFuture<'static, Result<(), JournalClosed>>;

    /// Records the end of a call, with its result for the model.
    fn end(&self, id: CallId, outcome: CallOutcome, content: Arc<str>);

    /// The conversation before the turn. It lists the earlier calls with an unknown outcome.
    fn conversation(&self) -> Arc<Conversation>;
}

/// A journal, and a copy in memory.
pub(crate) struct CopiedJournal {
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) copy: Arc<dyn CallJournal>,
}

impl CallJournal for CopiedJournal {
    fn begin(&self, calls: Vec<StartedCall>) -> BoxFuture<'static, Result<(), JournalClosed>> {
        // The copy is in memory, so it has the calls at once.
        drop(self.copy.begin(calls.clone()));
        self.journal.begin(calls)
    }

    fn end(&self, id: CallId, outcome: CallOutcome, content: Arc<str>) {
        self.copy.end(id.clone(), outcome, Arc::clone(&content));
        self.journal.end(id, outcome, content);
    }

    fn conversation(&self) -> Arc<Conversation> {
        self.journal.conversation()
    }
}

/// Error of [`CallJournal::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the turn accepts no more records of calls")]
pub struct JournalClosed;
