//! The answer of a call while it comes in: pieces in, events out, within bounds.

use std::collections::VecDeque;

use allstop_core::message::Arguments;
use allstop_core::{ToolCall, Usage};
use serde_json::Value;

use super::call_ids::CallIds;
use super::protocol::DecodeError;
use crate::{CALLS_MAX, FinishReason, ModelEvent};

/// The longest answer: text, reasoning and arguments together. The longest outputs that models offer are about a tenth
/// of it.
pub(super) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An answer under way.
pub(super) struct AnswerParts {
    events: VecDeque<ModelEvent>,
    ids: CallIds,
    calls: Vec<OpenCall>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    wants_tools: bool,
    bytes: usize,
}

/// A call that is being streamed.
pub(super) struct OpenCall {
    /// The protocol's own number of the call in this answer.
    index: u64,
    id: String,
    name: String,
    arguments: CallText,
}

enum CallText {
    /// The arguments so far, as the model writes them.
    Pieces(String),
    /// Nothing has come yet, and the protocol sends nothing for a call without arguments.
    OptionalPieces(String),
    Whole(Value),
}

impl AnswerParts {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            events: VecDeque::new(),
            ids,
            calls: Vec::new(),
            usage: None,
            finish: None,
            wants_tools: false,
            bytes: 0,
        }
    }

    pub(super) fn next_event(&mut self) -> Option<ModelEvent> {
        self.events.pop_front()
    }

    /// True if the provider has given a reason for the end.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), DecodeError> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Text(text.into()));
        }
        Ok(())
    }

    pub(super) fn reasoning(&mut self, text: &str) -> Result<(), DecodeError> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Reasoning(text.into()));
        }
        Ok(())
    }

    /// Begins a call whose arguments come as text in pieces. A protocol in which a call without arguments has no
    /// pieces passes `may_be_empty`.
    pub(super) fn begin_call(
        &mut self,
        index: u64,
        id: &str,
        name: &str,
        may_be_empty: bool,
    ) -> Result<(), DecodeError> {
        let arguments = if may_be_empty {
            CallText::OptionalPieces(String::new())
        } else {
            CallText::Pieces(String::new())
        };
        self.push_call(index, id, name, arguments)
    }

    /// Takes a call whose arguments have come whole.
    pub(super) fn whole_call(
        &mut self,
        id: &str,
        name: &str,
        arguments: Value,
        bytes: usize,
    ) -> Result<(), DecodeError> {
        self.count(bytes)?;
        let index = u64::try_from(self.calls.len()).unwrap_or(u64::MAX);
        self.push_call(index, id, name, CallText::Whole(arguments))?;
        self.events
            .push_back(ModelEvent::ToolCallProgress { bytes });
        Ok(())
    }

    fn push_call(
        &mut self,
        index: u64,
        id: &str,
        name: &str,
        arguments: CallText,
    ) -> Result<(), DecodeError> {
        self.count(id.len() + name.len())?;
        if self.calls.len() == CALLS_MAX {
            return Err(DecodeError::TooManyCalls);
        }
        self.calls.push(OpenCall {
            index,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        });
        Ok(())
    }

    /// The calls so far, the newest first, for a protocol that has to tell to which one a piece belongs.
    pub(super) fn newest_calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls.iter().rev()
    }

    /// Appends to the arguments of the newest call of this index; dropped where there is none.
    pub(super) fn more_arguments(&mut self, index: u64, piece: &str) -> Result<(), DecodeError> {
        self.count(piece.len())?;
        let call = self.calls.iter_mut().rev().find(|call| call.index == index);
        let Some(call) = call else { return Ok(()) };
        if let CallText::Pieces(text) | CallText::OptionalPieces(text) = &mut call.arguments {
            text.push_str(piece);
            let bytes = piece.len();
            self.events
                .push_back(ModelEvent::ToolCallProgress { bytes });
        }
        Ok(())
    }

    pub(super) fn usage_so_far(&self) -> Option<Usage> {
        self.usage
    }

    /// Takes what the provider counts; the last count stands.
    pub(super) fn usage(&mut self, usage: Option<Usage>) {
        self.usage = usage.or(self.usage);
    }

    /// The provider's reason for the end. `wants_tools`: it says that the model calls tools.
    pub(super) fn finish(&mut self, reason: FinishReason, wants_tools: bool) {
        self.finish = Some(reason);
        self.wants_tools |= wants_tools;
    }

    /// The answer is complete: gives out its calls, its usage and its end.
    pub(super) fn end(&mut self) -> Result<(), DecodeError> {
        let finish = self.finish.unwrap_or(FinishReason::Done);
        // The cut fell into the last call: the model is told that it did not run.
        let is_cut = finish != FinishReason::Done;
        let mut has_calls = false;
        for call in std::mem::take(&mut self.calls) {
            // What was cut before its name came cannot be answered.
            if is_cut && call.name.is_empty() {
                continue;
            }
            has_calls = true;
            self.events.push_back(ModelEvent::ToolCall(ToolCall {
                id: self.ids.unique(&call.id),
                name: call.name.into(),
                arguments: call.arguments.into_arguments(is_cut),
            }));
        }
        if self.wants_tools && !has_calls {
            return Err(DecodeError::NoCall);
        }
        self.events.extend(self.usage.map(ModelEvent::Usage));
        self.events.push_back(ModelEvent::End(finish));
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.bytes += bytes;
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(DecodeError::AnswerTooLong);
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

    /// True if its arguments are whole JSON already.
    pub(super) fn is_whole(&self) -> bool {
        match &self.arguments {
            CallText::Pieces(text) | CallText::OptionalPieces(text) => {
                serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
            }
            CallText::Whole(_) => true,
        }
    }
}

impl CallText {
    /// The arguments as the model wrote them: never an empty object in the place of what does not parse.
    fn into_arguments(self, is_cut: bool) -> Arguments {
        let text = match self {
            Self::Whole(Value::String(text)) => return Arguments::Malformed(text.into()),
            Self::Whole(json) => return Arguments::Json(json.into()),
            Self::OptionalPieces(text) if text.is_empty() && !is_cut => "{}".to_owned(),
            Self::OptionalPieces(text) | Self::Pieces(text) => text,
        };
        match serde_json::from_str(&text) {
            // A JSON string is no arguments either.
            Ok(Value::String(_)) | Err(_) => Arguments::Malformed(text.into()),
            Ok(json) => Arguments::Json(Value::into(json)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pieces(text: &str) -> CallText {
        CallText::Pieces(text.into())
    }

    #[test]
    fn arguments_that_do_not_parse_are_kept_as_text() {
        for text in ["{\"a\": ", "", "\"a\"", "{}{}"] {
            let malformed = Arguments::Malformed(text.into());
            assert_eq!(pieces(text).into_arguments(false), malformed);
        }
        let a = Arguments::from(json!({"a": 1}));
        assert_eq!(pieces("{\"a\":1}").into_arguments(true), a);
        let empty = |is_cut| CallText::OptionalPieces(String::new()).into_arguments(is_cut);
        assert_eq!(empty(false), Arguments::from(json!({})));
        assert_eq!(empty(true), Arguments::Malformed("".into()));
    }

    #[test]
    fn answer_and_calls_are_bounded() {
        let mut answer = AnswerParts::new(CallIds::avoiding(&[]));
        let half = "x".repeat(ANSWER_BYTES_MAX / 2);
        assert!(answer.text(&half).is_ok());
        assert!(answer.reasoning(&half).is_ok());
        assert!(matches!(answer.text("x"), Err(DecodeError::AnswerTooLong)));

        let mut answer = AnswerParts::new(CallIds::avoiding(&[]));
        for index in 0..CALLS_MAX as u64 {
            assert!(answer.begin_call(index, "", "t", false).is_ok());
        }
        let more = answer.begin_call(u64::MAX, "", "t", false);
        assert!(matches!(more, Err(DecodeError::TooManyCalls)));
    }
}
