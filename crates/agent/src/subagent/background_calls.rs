//! Calls of a sub-agent in the background and of all sub-agents below it, in memory. They are a part of the answer of a
//! sub-agent that ends without one.

use std::sync::Arc;

use allstop_core::CallId;
use allstop_core::record::{CallOutcome, StartedCall};
use allstop_core::turn::{Conversation, TurnEffects};
use allstop_tools::{CallJournal, CallObserver, CallProgress, JournalClosed};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// Clones share one list.
#[derive(Debug, Clone)]
pub(super) struct BackgroundCalls {
    effects: Arc<Mutex<TurnEffects>>,
    /// Conversation of the outermost agent.
    conversation: Arc<Conversation>,
}

impl BackgroundCalls {
    pub(super) fn new(conversation: Arc<Conversation>) -> Self {
        Self {
            effects: Arc::default(),
            conversation,
        }
    }

    /// Answer of a sub-agent that cannot return one. `None` if no call may have changed something.
    pub(super) fn answer(&self) -> Option<String> {
        let is_empty = self.effects.lock().is_empty();
        (!is_empty).then(|| self.after("the agent ended without an answer"))
    }

    /// The reason of a failure, and the calls that may have changed something, for the model.
    pub(super) fn after(&self, reason: &str) -> String {
        with_calls(reason, &self.effects.lock())
    }
}

/// The reason of a failure, and the calls that may have changed something, for the model.
pub(super) fn with_calls(reason: &str, effects: &TurnEffects) -> String {
    match effects.of_sub_agent() {
        calls if calls.is_empty() => reason.to_owned(),
        calls => format!("{reason}\n{calls}"),
    }
}

impl CallJournal for BackgroundCalls {
    fn begin(&self, calls: Vec<StartedCall>) -> BoxFuture<'static, Result<(), JournalClosed>> {
        let mut effects = self.effects.lock();
        for call in &calls {
            effects.start(call);
        }
        std::future::ready(Ok(())).boxed()
    }

    fn end(&self, id: CallId, outcome: CallOutcome, _content: Arc<str>) {
        self.effects.lock().finish(&id, outcome, false, None);
    }

    fn conversation(&self) -> Arc<Conversation> {
        Arc::clone(&self.conversation)
    }
}

/// No call waits for the sub-agent, so nothing shows its output here.
impl CallObserver for BackgroundCalls {
    fn output(&self, _call_id: &CallId, _output: &[u8]) {}

    fn progress(&self, _call_id: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}

    fn journal(&self) -> Option<Arc<dyn CallJournal>> {
        Some(Arc::new(self.clone()))
    }
}
