//! A step whose model has answered with tool calls: it joins the draft when each of them has its result.

use std::collections::HashSet;
use std::sync::Arc;

use crate::ids::CallId;
use crate::message::{Message, ToolCall, ToolResult};
use crate::turn::state::IllegalEvent;

/// The model's answer and the results so far, in the order of the calls.
#[derive(Debug)]
pub(super) struct OpenStep {
    text: Arc<str>,
    calls: Vec<ToolCall>,
    results: Vec<Option<ToolResult>>,
}

impl OpenStep {
    pub(super) fn new(text: Arc<str>, calls: Vec<ToolCall>) -> Self {
        let results = calls.iter().map(|_| None).collect();
        Self {
            text,
            calls,
            results,
        }
    }

    /// The call of this id, if it awaits its result.
    pub(super) fn awaiting(&self, id: &CallId) -> Result<(usize, &ToolCall), IllegalEvent> {
        let found = self.calls.iter().zip(&self.results).enumerate();
        found
            .filter(|(_, (_, result))| result.is_none())
            .map(|(at, (call, _))| (at, call))
            .find(|(_, call)| call.id == *id)
            .ok_or_else(|| IllegalEvent::NotAsked(id.clone()))
    }

    /// The calls that await their result, in order.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &ToolCall> {
        self.calls
            .iter()
            .zip(&self.results)
            .filter(|(_, r)| r.is_none())
            .map(|(call, _)| call)
    }

    /// Puts the result of the call at this place.
    pub(super) fn answer(&mut self, at: usize, result: ToolResult) {
        if let Some(slot) = self.results.get_mut(at) {
            *slot = Some(result);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    /// The messages of the step. A call that has no result gets the one that `missing` makes for it.
    pub(super) fn into_messages(
        self,
        messages: &mut Vec<Arc<Message>>,
        mut missing: impl FnMut(&ToolCall) -> ToolResult,
    ) {
        let results = self.calls.iter().zip(self.results);
        let results: Vec<_> = results
            .map(|(call, result)| result.unwrap_or_else(|| missing(call)))
            .collect();
        messages.push(Arc::new(Message::Assistant {
            text: self.text,
            tool_calls: self.calls,
        }));
        messages.extend(
            results
                .into_iter()
                .map(|result| Arc::new(Message::Tool(result))),
        );
    }
}

/// Makes the ids of a model's calls unique: some providers send none, the same one twice in a message, or the same
/// ones in each step. An id that is new stays as it is.
pub(super) fn make_ids_unique(calls: &mut [ToolCall], mut is_taken: impl FnMut(&CallId) -> bool) {
    let mut seen: HashSet<CallId> = HashSet::with_capacity(calls.len());
    for call in calls {
        let mut suffix = 1;
        let original = if call.id.as_str().is_empty() {
            CallId::from("call")
        } else {
            call.id.clone()
        };
        call.id = original.clone();
        while seen.contains(&call.id) || is_taken(&call.id) {
            suffix += 1;
            call.id = CallId::from(format!("{original}_{suffix}"));
        }
        seen.insert(call.id.clone());
    }
}
