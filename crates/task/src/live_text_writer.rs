//! Access of an executor to the live text of its task.

use std::sync::Arc;

use allstop_scope::Scope;

use crate::feed::TaskFeed;

/// Writes the live text of an artifact. Clones write to the same text.
#[derive(Debug, Clone)]
pub struct LiveTextWriter {
    feed: Arc<TaskFeed>,
    scope: Scope,
}

impl LiveTextWriter {
    pub(crate) fn new(feed: Arc<TaskFeed>, scope: Scope) -> Self {
        Self { feed, scope }
    }

    /// Begins a new text for this artifact. The first piece of the new text replaces the pieces of the previous text.
    pub fn restart(&self, id: impl Into<Arc<str>>, name: Option<Arc<str>>) {
        let scope = self.scope.clone();
        self.feed
            .set_live(|state| state.restart(id.into(), name, scope));
    }

    /// Adds a piece of text. Without a text to continue, the piece is dropped: before the first
    /// [`restart`](Self::restart), and after the artifact is durable.
    pub fn push(&self, text: &str) {
        self.feed.set_live(|state| state.push(text));
    }
}
