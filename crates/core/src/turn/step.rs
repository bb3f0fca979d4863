//! A step in which the model has requested tool calls. When each call has its result, the messages of the step are
//! added to the draft.

use std::sync::Arc;

use crate::finish_reason::FinishReason;
use crate::ids::CallId;
use crate::message::{Message, ToolCall, ToolResult};
use crate::turn::request_names::is_valid_id;
use crate::turn::state::IllegalEvent;

/// The model's answer and the results so far, in the order of the calls.
#[derive(Debug)]
pub(super) struct OpenStep {
    text: Arc<str>,
    calls: Vec<ToolCall>,
    results: Vec<Option<ToolResult>>,
    finish: FinishReason,
}

impl OpenStep {
    pub(super) fn new(text: Arc<str>, calls: Vec<ToolCall>, finish: FinishReason) -> Self {
        let results = calls.iter().map(|_| None).collect();
        Self {
            text,
            calls,
            results,
            finish,
        }
    }

    /// Index and call with this id. Fails if the step does not wait for the result of such a call.
    pub(super) fn awaiting(&self, id: &CallId) -> Result<(usize, &ToolCall), IllegalEvent> {
        let found = self.calls.iter().zip(&self.results).enumerate();
        found
            .filter(|(_, (_, result))| result.is_none())
            .map(|(at, (call, _))| (at, call))
            .find(|(_, call)| call.id == *id)
            .ok_or_else(|| IllegalEvent::NotAsked(id.clone()))
    }

    /// Calls without a result, in order.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &ToolCall> {
        self.calls
            .iter()
            .zip(&self.results)
            .filter(|(_, r)| r.is_none())
            .map(|(call, _)| call)
    }

    /// Stores the result of the call at this index.
    pub(super) fn answer(&mut self, at: usize, result: ToolResult) {
        if let Some(slot) = self.results.get_mut(at) {
            *slot = Some(result);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    /// Appends the messages of the step. For a call without a result, `missing` creates the result.
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
        messages.extend(cut_note(self.finish));
    }
}

/// Note to the model about an answer that was cut off.
pub(super) fn cut_note(finish: FinishReason) -> Option<Arc<Message>> {
    let cut = finish.cut_words()?;
    let text = format!("Your previous answer {cut} and is incomplete.").into();
    Some(Arc::new(Message::Note { text }))
}

/// Makes the ids of a model's calls unique. Some providers send no ids, repeat an id within a message, or repeat the
/// ids in each step. A valid id that is new in the turn stays. Any other id is replaced by `call_N`. N is the first
/// free number, starting at `from`. An id is invalid if a provider could refuse it. An id with a slash is invalid too,
/// because slashes separate the ids in the path of a sub-agent's call.
pub(super) fn make_ids_unique(
    calls: &mut [ToolCall],
    from: usize,
    is_taken: impl Fn(&CallId) -> bool,
) {
    for at in 0..calls.len() {
        let (before, rest) = calls.split_at_mut(at);
        let Some(call) = rest.first_mut() else { return };
        let is_free = |id: &CallId| before.iter().all(|earlier| earlier.id != *id) && !is_taken(id);
        if !is_valid_id(&call.id) || !is_free(&call.id) {
            let mut numbered = (from..).map(|n| CallId::from(format!("call_{n}")));
            call.id = numbered.find(is_free).expect("some number is free");
        }
    }
}
