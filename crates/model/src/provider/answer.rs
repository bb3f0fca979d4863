//! Assembles the answer of a model call: receives the pieces of the answer, and returns events. The length of an answer
//! is limited.

use std::collections::VecDeque;

use allstop_core::message::Arguments;
use allstop_core::{ToolCall, Usage};
use serde_json::Value;

use super::bounded_json::{JsonError, VALUE_BYTES_MAX, parse_within};
use super::call_ids::CallIds;
use super::protocol::EventDecodeError;
use crate::{CALLS_MAX, FinishReason, ModelEvent};

pub(super) struct AnswerParts {
    events: VecDeque<ModelEvent>,
    ids: CallIds,
    calls: Vec<OpenCall>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    wants_tools: bool,
    has_text: bool,
    bytes: usize,
    bytes_max: usize,
}

/// A tool call whose arguments are still arriving.
pub(super) struct OpenCall {
    /// The number that the protocol gives the call in this answer.
    index: u64,
    id: String,
    name: String,
    arguments: CallText,
}

/// The arguments of a call that have arrived so far, as text.
struct CallText {
    text: String,
    /// True if the protocol sends no text for a call without arguments.
    may_be_empty: bool,
}

impl AnswerParts {
    /// Creates an empty answer of at most this length.
    pub(super) fn new(ids: CallIds, bytes_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            ids,
            calls: Vec::new(),
            usage: None,
            finish: None,
            wants_tools: false,
            has_text: false,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn next_event(&mut self) -> Option<ModelEvent> {
        self.events.pop_front()
    }

    /// True if the provider has sent a finish reason.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), EventDecodeError> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.has_text = true;
            self.events.push_back(ModelEvent::Text(text.into()));
        }
        Ok(())
    }

    pub(super) fn reasoning(&mut self, text: &str) -> Result<(), EventDecodeError> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Reasoning(text.into()));
        }
        Ok(())
    }

    /// Begins a call whose arguments arrive as text. `may_be_empty` is true if the protocol sends no text for a call
    /// without arguments.
    pub(super) fn begin_call(
        &mut self,
        index: u64,
        id: &str,
        name: &str,
        may_be_empty: bool,
    ) -> Result<(), EventDecodeError> {
        self.count(id.len() + name.len())?;
        if self.calls.len() == CALLS_MAX {
            return Err(EventDecodeError::TooManyCalls);
        }
        self.calls.push(OpenCall {
            index,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: CallText {
                text: String::new(),
                may_be_empty,
            },
        });
        Ok(())
    }

    /// The calls so far, the newest call first. A protocol uses this list to find the call that a piece belongs to.
    pub(super) fn newest_calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls.iter().rev()
    }

    /// Adds a piece to the arguments of the newest call with this index. If no call has this index, the piece is
    /// dropped.
    pub(super) fn more_arguments(
        &mut self,
        index: u64,
        piece: &str,
    ) -> Result<(), EventDecodeError> {
        self.count(piece.len())?;
        let call = self.calls.iter_mut().rev().find(|call| call.index == index);
        let Some(call) = call else { return Ok(()) };
        call.arguments.text.push_str(piece);
        let bytes = piece.len();
        self.events
            .push_back(ModelEvent::ToolCallProgress { bytes });
        Ok(())
    }

    pub(super) fn usage_so_far(&self) -> Option<Usage> {
        self.usage
    }

    /// Stores the token counts of the provider. New counts replace earlier counts.
    pub(super) fn usage(&mut self, usage: Option<Usage>) {
        self.usage = usage.or(self.usage);
    }

    /// Stores the finish reason of the provider. `wants_tools` is true if this reason means that the answer contains
    /// tool calls.
    pub(super) fn finish(&mut self, reason: FinishReason, wants_tools: bool) {
        self.finish = Some(reason);
        self.wants_tools |= wants_tools;
    }

    /// Ends the answer: adds the events for its calls, its usage and its end.
    pub(super) fn end(&mut self) -> Result<(), EventDecodeError> {
        let finish = self.finish.unwrap_or(FinishReason::Done);
        // If this is true, the last call was cut off. Its malformed arguments show the model that the call did not run.
        let is_cut = finish != FinishReason::Done;
        let mut has_calls = false;
        let mut room = VALUE_BYTES_MAX;
        for call in std::mem::take(&mut self.calls) {
            // A call that was cut off before its name cannot get a result, so this call is left out.
            if is_cut && call.name.is_empty() {
                continue;
            }
            has_calls = true;
            self.events.push_back(ModelEvent::ToolCall(ToolCall {
                id: self.ids.unique(&call.id),
                name: call.name.into(),
                arguments: call.arguments.into_arguments(is_cut, &mut room)?,
            }));
        }
        if self.wants_tools && !has_calls {
            return Err(EventDecodeError::NoCall);
        }
        if self.finish.is_none() && !self.has_text && !has_calls {
            return Err(EventDecodeError::EmptyAnswer);
        }
        self.events.extend(self.usage.map(ModelEvent::Usage));
        self.events.push_back(ModelEvent::End(finish));
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), EventDecodeError> {
        self.bytes += bytes;
        if self.bytes > self.bytes_max {
            return Err(EventDecodeError::AnswerTooLong);
        }
        Ok(())
    }
}

impl OpenCall {
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// True if the call's arguments are already complete JSON.
    pub(super) fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments.text).is_ok()
    }
}

impl CallText {
    /// The arguments as the model wrote them. Invalid arguments are never replaced with an empty object.
    fn into_arguments(self, is_cut: bool, room: &mut usize) -> Result<Arguments, EventDecodeError> {
        let Self { text, may_be_empty } = self;
        let text = if text.is_empty() && may_be_empty && !is_cut {
            "{}".to_owned()
        } else {
            text
        };
        match parse_within(&text, room) {
            Err(JsonError::TooLarge) => Err(EventDecodeError::ArgumentsTooLarge),
            // A JSON string is not valid as arguments.
            Ok(Value::String(_)) | Err(JsonError::Syntax(_)) => {
                Ok(Arguments::Malformed(text.into()))
            }
            Ok(json) => Ok(Arguments::Json(Value::into(json))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pieces(text: &str) -> CallText {
        CallText {
            text: text.into(),
            may_be_empty: false,
        }
    }

    fn arguments(text: CallText, is_cut: bool) -> Arguments {
        let mut room = VALUE_BYTES_MAX;
        text.into_arguments(is_cut, &mut room).unwrap()
    }

    #[test]
    fn arguments_that_do_not_parse_are_kept_as_text() {
        for text in ["{\"a\": ", "", "\"a\"", "{}{}"] {
            let malformed = Arguments::Malformed(text.into());
            assert_eq!(arguments(pieces(text), false), malformed);
        }
        let a = Arguments::from(json!({"a": 1}));
        assert_eq!(arguments(pieces("{\"a\":1}"), true), a);
        let empty = |is_cut| {
            let optional = CallText {
                may_be_empty: true,
                ..pieces("")
            };
            arguments(optional, is_cut)
        };
        assert_eq!(empty(false), Arguments::from(json!({})));
        assert_eq!(empty(true), Arguments::Malformed("".into()));
    }

    #[test]
    fn answer_and_calls_are_bounded() {
        let mut answer = AnswerParts::new(CallIds::avoiding(&[]), 20);
        let half = "x".repeat(10);
        assert!(answer.text(&half).is_ok());
        assert!(answer.reasoning(&half).is_ok());
        assert!(matches!(
            answer.text("x"),
            Err(EventDecodeError::AnswerTooLong)
        ));

        let mut answer = AnswerParts::new(CallIds::avoiding(&[]), usize::MAX);
        for index in 0..CALLS_MAX as u64 {
            assert!(answer.begin_call(index, "", "t", false).is_ok());
        }
        let more = answer.begin_call(u64::MAX, "", "t", false);
        assert!(matches!(more, Err(EventDecodeError::TooManyCalls)));
    }
}
