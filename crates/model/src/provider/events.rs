//! The stream of one call: genai's events as ours, until the provider's end marker.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use allstop_core::message::Arguments;
use allstop_core::{CallId, Message, ToolCall, Usage};
use futures::Stream;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd};
use serde_json::Value;

use super::client::Lease;
use super::failure::FailureCx;
use crate::{CALLS_MAX, FinishReason, ModelError, ModelErrorKind, ModelEvent};

/// What was seen on the wire, which genai's events do not tell.
#[derive(Debug, Default)]
pub(super) struct FrameWatch {
    frame: AtomicBool,
    data: AtomicBool,
    end_marker: AtomicBool,
}

impl FrameWatch {
    pub(super) fn saw(&self, data: &str) {
        self.frame.store(true, Ordering::Relaxed);
        if !data.is_empty() {
            self.data.store(true, Ordering::Relaxed);
        }
        if data == "[DONE]" {
            self.end_marker.store(true, Ordering::Relaxed);
        }
    }

    /// Something came, but nothing that is an event: a web page, or JSON that is no stream.
    pub(super) fn saw_no_event(&self) -> bool {
        self.frame.load(Ordering::Relaxed) && !self.data.load(Ordering::Relaxed)
    }

    fn saw_end_marker(&self) -> bool {
        self.end_marker.load(Ordering::Relaxed)
    }
}

/// Gives each call an id that the conversation does not have yet.
pub(super) struct CallIds {
    taken: HashSet<CallId>,
}

impl CallIds {
    pub(super) fn avoiding(messages: &[Arc<Message>]) -> Self {
        let taken = messages
            .iter()
            .filter_map(|message| match &**message {
                Message::Assistant { tool_calls, .. } => Some(tool_calls),
                _ => None,
            })
            .flatten()
            .map(|call| call.id.clone())
            .collect();
        Self { taken }
    }

    /// The provider's own id where it is one and not taken. Servers that number calls in each answer anew (`call_0`)
    /// are common.
    fn unique(&mut self, given: String) -> CallId {
        let base = if given.trim().is_empty() {
            "call".to_owned()
        } else {
            given
        };
        let mut id: CallId = base.as_str().into();
        let mut n = 1;
        while !self.taken.insert(id.clone()) {
            n += 1;
            id = format!("{base}_{n}").into();
        }
        id
    }
}

/// The events of one call. Dropping it drops the connection, unless the end has been seen.
pub(super) struct ProviderEvents {
    chat: Option<ChatStream>,
    lease: Option<Lease>,
    failures: FailureCx,
    frames: Arc<FrameWatch>,
    ids: CallIds,
    half_calls: HalfCalls,
    queue: VecDeque<ModelEvent>,
}

impl ProviderEvents {
    pub(super) fn new(
        chat: ChatStream,
        lease: Lease,
        failures: FailureCx,
        frames: Arc<FrameWatch>,
        ids: CallIds,
    ) -> Self {
        Self {
            chat: Some(chat),
            lease: Some(lease),
            failures,
            frames,
            ids,
            half_calls: HalfCalls::default(),
            queue: VecDeque::new(),
        }
    }

    /// Puts an event back that was taken too early.
    pub(super) fn put_back(&mut self, event: ModelEvent) {
        self.queue.push_front(event);
    }

    /// Ends the call: what is left of it is dropped, the connection first.
    fn fail(&mut self, error: ModelError) -> ModelError {
        self.chat = None;
        self.lease = None;
        self.queue.clear();
        error
    }

    fn take(&mut self, event: ChatStreamEvent) -> Result<(), ModelError> {
        match event {
            ChatStreamEvent::Chunk(chunk) if !chunk.content.is_empty() => {
                self.queue.push_back(ModelEvent::Text(chunk.content.into()));
            }
            ChatStreamEvent::ReasoningChunk(chunk) if !chunk.content.is_empty() => {
                self.queue
                    .push_back(ModelEvent::Reasoning(chunk.content.into()));
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                let bytes = self.half_calls.take(chunk.tool_call);
                if self.half_calls.0.len() > CALLS_MAX {
                    return Err(too_many_calls(self.half_calls.0.len()));
                }
                self.queue.push_back(ModelEvent::ToolCallProgress { bytes });
            }
            ChatStreamEvent::End(end) => self.end(end)?,
            ChatStreamEvent::Start
            | ChatStreamEvent::Chunk(_)
            | ChatStreamEvent::ReasoningChunk(_)
            | ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::Heartbeat => {}
        }
        Ok(())
    }

    fn end(&mut self, end: StreamEnd) -> Result<(), ModelError> {
        // Most of genai's adapters make an end up where the stream was cut; a real one has a reason or a marker.
        if end.captured_stop_reason.is_none() && !self.frames.saw_end_marker() {
            return Err(self.failures.ended_early(&self.frames));
        }
        let finish = match &end.captured_stop_reason {
            Some(StopReason::MaxTokens(_)) => FinishReason::Length,
            Some(StopReason::ContentFilter(_)) => FinishReason::ContentFilter,
            _ => FinishReason::Done,
        };
        let wants_tools = matches!(&end.captured_stop_reason, Some(StopReason::ToolCall(_)));
        let usage = end.captured_usage.as_ref().and_then(usage_of);
        let mut calls = Vec::new();
        let captured = end.captured_into_tool_calls().unwrap_or_default();
        // genai fills the gaps that a wild index leaves: a million calls from a line of text.
        if captured.len() > CALLS_MAX {
            return Err(too_many_calls(captured.len()));
        }
        let is_cut = finish != FinishReason::Done;
        let mut half_calls = std::mem::take(&mut self.half_calls);
        for call in captured {
            let text = half_calls.remove(&call.call_id);
            calls.push(ToolCall {
                id: self.ids.unique(call.call_id),
                name: call.fn_name.into(),
                arguments: arguments_of(call.fn_arguments, text, is_cut),
            });
        }
        if is_cut {
            // The cut fell into these, and the adapter has kept them back: the model is told that they did not run.
            for call in half_calls
                .0
                .into_iter()
                .filter(|call| !call.name.is_empty())
            {
                calls.push(ToolCall {
                    id: self.ids.unique(call.id),
                    name: call.name.into(),
                    arguments: Arguments::Malformed(call.arguments.into()),
                });
            }
        }
        if wants_tools && calls.is_empty() {
            return Err(ModelError::new(
                ModelErrorKind::Protocol,
                "the provider says that the model calls tools, but sent no call that can be read",
            ));
        }
        self.queue
            .extend(calls.into_iter().map(ModelEvent::ToolCall));
        self.queue.extend(usage.map(ModelEvent::Usage));
        self.queue.push_back(ModelEvent::End(finish));
        // The body first, then the client: only then is the connection idle.
        self.chat = None;
        if let Some(lease) = self.lease.take() {
            lease.finish();
        }
        Ok(())
    }
}

impl Stream for ProviderEvents {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.queue.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(chat) = &mut this.chat else {
                return Poll::Ready(None);
            };
            let taken = match ready!(Pin::new(chat).poll_next(cx)) {
                Some(Ok(event)) => this.take(event),
                Some(Err(error)) => Err(this.failures.of(error)),
                None => Err(this.failures.ended_early(&this.frames)),
            };
            if let Err(error) = taken {
                return Poll::Ready(Some(Err(this.fail(error))));
            }
        }
    }
}

/// What the provider counted, if it counted both ways.
fn usage_of(usage: &genai::chat::Usage) -> Option<Usage> {
    let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
    Some(Usage {
        input_tokens: tokens(usage.prompt_tokens)?,
        output_tokens: tokens(usage.completion_tokens)?,
        estimated: false,
    })
}

/// The calls that are being streamed. genai's chunks hold all of a call so far, each more than the one before.
#[derive(Default)]
struct HalfCalls(Vec<HalfCall>);

struct HalfCall {
    id: String,
    name: String,
    /// The arguments as text: some of genai's adapters replace what they cannot parse.
    arguments: String,
}

impl HalfCalls {
    /// Takes what has come of a call so far, and returns how many bytes of that are new.
    fn take(&mut self, call: genai::chat::ToolCall) -> usize {
        let Value::String(arguments) = call.fn_arguments else {
            return 0;
        };
        let grows = |half: &HalfCall| arguments.starts_with(&half.arguments);
        // Some servers give two calls the same id, and a few give a call another id in its second chunk.
        let same_id = |half: &HalfCall| half.id == call.call_id && grows(half);
        let same_name = |half: &HalfCall| half.name == call.fn_name && grows(half);
        let at = self.0.iter().position(same_id);
        let at = at.or_else(|| self.0.iter().position(same_name));
        if let Some(half) = at.and_then(|at| self.0.get_mut(at)) {
            let new = arguments.len() - half.arguments.len();
            (half.id, half.arguments) = (call.call_id, arguments);
            return new;
        }
        let new = arguments.len();
        self.0.push(HalfCall {
            id: call.call_id,
            name: call.fn_name,
            arguments,
        });
        new
    }

    /// Takes a call out that is whole, and gives its text.
    fn remove(&mut self, id: &str) -> Option<String> {
        let at = self.0.iter().position(|half| half.id == id)?;
        Some(self.0.remove(at).arguments)
    }
}

fn too_many_calls(count: usize) -> ModelError {
    ModelError::new(
        ModelErrorKind::Protocol,
        format!("the model asked for {count} calls at once; at most {CALLS_MAX} are taken"),
    )
}

/// The arguments as the model wrote them. `text` is what came in pieces, of an answer that may have been cut.
fn arguments_of(parsed: Value, text: Option<String>, is_cut: bool) -> Arguments {
    match parsed {
        // genai leaves what it cannot parse as a string. A JSON string is no arguments either.
        Value::String(text) => Arguments::Malformed(text.into()),
        Value::Object(fields) if fields.is_empty() => match text {
            // A tool without arguments may be called with no text at all, unless the cut fell there.
            Some(text) if text.is_empty() && !is_cut => {
                Arguments::Json(Value::Object(fields).into())
            }
            Some(text) if serde_json::from_str::<Value>(&text).is_err() => {
                Arguments::Malformed(text.into())
            }
            _ => Arguments::Json(Value::Object(fields).into()),
        },
        json => Arguments::Json(json.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_do_not_parse_are_kept_as_text() {
        let malformed = |text: &str| Arguments::Malformed(text.into());
        assert_eq!(
            arguments_of(json!("{\"a\": "), None, false),
            malformed("{\"a\": ")
        );
        assert_eq!(arguments_of(json!(""), None, false), malformed(""));
        // An adapter that put `{}` in its place.
        assert_eq!(
            arguments_of(json!({}), Some("{\"a".into()), false),
            malformed("{\"a")
        );
        assert_eq!(
            arguments_of(json!({}), Some("{}".into()), true),
            Arguments::from(json!({}))
        );
        assert_eq!(
            arguments_of(json!({}), None, false),
            Arguments::from(json!({}))
        );
        let no_text = |is_cut| arguments_of(json!({}), Some(String::new()), is_cut);
        assert_eq!(no_text(false), Arguments::from(json!({})));
        assert_eq!(no_text(true), malformed(""));
        assert_eq!(
            arguments_of(json!({"a": 1}), None, true),
            Arguments::from(json!({"a": 1}))
        );
    }

    #[test]
    fn ids_are_unique_in_the_conversation() {
        let call = ToolCall {
            id: "call_0".into(),
            name: "t".into(),
            arguments: Arguments::from(json!({})),
        };
        let before = Message::Assistant {
            text: "".into(),
            tool_calls: vec![call],
        };
        let mut ids = CallIds::avoiding(&[Arc::new(before)]);
        assert_eq!(ids.unique("call_0".into()).as_str(), "call_0_2");
        assert_eq!(ids.unique("call_1".into()).as_str(), "call_1");
        assert_eq!(ids.unique(String::new()).as_str(), "call");
        assert_eq!(ids.unique(String::new()).as_str(), "call_2");
    }
}
