//! Calls of a sub-agent in the background, in memory. They are the answer of a sub-agent that is stopped by force or that
//! panics.

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

    /// The calls that may have changed something, for the model. `None` if there are none.
    pub(super) fn answer(&self) -> Option<String> {
        let calls = self.effects.lock().of_sub_agent();
        (!calls.is_empty()).then(|| format!("the agent ended without an answer\n{calls}"))
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
