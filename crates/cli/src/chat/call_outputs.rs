//! Outputs of the tool calls of a chat, for the command `/output`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::counted::counted;
use allstop_core::message::Message;
use allstop_core::record::CallOutcome;
use allstop_core::turn::Conversation;
use allstop_core::{CallId, describe_call};

/// Maximum number of calls whose outputs are kept here. The outputs of older calls are read from the conversation.
const CALLS_MAX: usize = 64;
/// Maximum bytes that are kept of a running call's output; the last bytes are kept. The tool itself limits the result
/// of a finished call.
const RUNNING_BYTES_MAX: usize = 64 * 1024;

/// Outputs of the most recent tool calls.
#[derive(Debug, Default)]
pub(super) struct CallOutputs {
    calls: VecDeque<CallOutput>,
}

/// Output of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallOutput {
    pub(super) id: CallId,
    /// One-line label of the call.
    pub(super) label: String,
    pub(super) text: String,
    pub(super) state: CallOutputState,
}

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOutputState {
    Runs,
    /// A stop has ended the call.
    Stopped,
    Ended,
}

impl CallOutputs {
    /// Handles a live event of the session.
    pub(super) fn event(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => {
                if self.calls.len() == CALLS_MAX {
                    self.calls.pop_front();
                }
                self.calls.push_back(CallOutput {
                    id: call_id.clone(),
                    label: describe_call(name, arguments),
                    text: String::new(),
                    state: CallOutputState::Runs,
                });
            }
            AgentEvent::ToolOutput {
                call_id,
                text,
                missed_bytes,
                ..
            } => {
                if let Some(call) = self.find_mut(call_id) {
                    if *missed_bytes > 0 {
                        // Writing to a string cannot fail.
                        let _ = writeln!(
                            call.text,
                            "\n[not shown: {}]",
                            counted(*missed_bytes, "byte", "bytes")
                        );
                    }
                    call.text.push_str(text);
                    // The text is cut only when it is longer than twice the limit. So each byte is moved at most once.
                    if call.text.len() > 2 * RUNNING_BYTES_MAX {
                        let cut = call.text.len() - RUNNING_BYTES_MAX;
                        let cut = call.text.ceil_char_boundary(cut);
                        call.text.drain(..cut);
                    }
                }
            }
            AgentEvent::ToolProgress { call_id, progress } => {
                if let Some(call) = self.find_mut(call_id) {
                    call.text = progress.to_string();
                }
            }
            AgentEvent::ToolFinished {
                call_id,
                content,
                outcome,
                ..
            } => {
                if let Some(call) = self.find_mut(call_id) {
                    call.text = content.to_string();
                    call.state = match outcome {
                        CallOutcome::Stopped => CallOutputState::Stopped,
                        _ => CallOutputState::Ended,
                    };
                }
            }
            AgentEvent::TurnEnded { .. } => self.turn_ended(),
            _ => {}
        }
    }

    /// Handles the end of a turn. Its calls without a result were stopped together with the turn.
    fn turn_ended(&mut self) {
        let running = self.calls.iter_mut();
        let running = running.filter(|call| call.state == CallOutputState::Runs);
        running.for_each(|call| call.state = CallOutputState::Stopped);
    }

    /// Label of a call.
    pub(super) fn label(&self, id: &CallId) -> Option<&str> {
        let call = self.calls.iter().rev().find(|call| call.id == *id)?;
        Some(&call.label)
    }

    /// Finds the most recent call with this id or of this tool. If `given` is `None`, finds the most recent call.
    pub(super) fn find(&self, given: Option<&str>) -> Option<&CallOutput> {
        let is_meant = |call: &&CallOutput| {
            given.is_none_or(|given| {
                call.id.as_str() == given || call.label.split([':', ' ']).next() == Some(given)
            })
        };
        self.calls.iter().rev().find(is_meant)
    }

    /// Ids of the calls, from the newest to the oldest.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        self.calls.iter().rev().map(|call| call.id.to_string())
    }

    fn find_mut(&mut self, id: &CallId) -> Option<&mut CallOutput> {
        self.calls.iter_mut().rev().find(|call| call.id == *id)
    }
}

/// Finds a finished call in the recorded conversation. The call may be older than this chat.
pub(super) fn recorded_output(
    conversation: &Conversation,
    given: Option<&str>,
) -> Option<CallOutput> {
    let mut results = Vec::<&Arc<Message>>::new();
    for message in conversation.messages.iter().rev() {
        match &**message {
            Message::Tool(_) => results.push(message),
            Message::Assistant { tool_calls, .. } => {
                for call in tool_calls.iter().rev() {
                    let is_meant = |given: &str| call.id.as_str() == given || &*call.name == given;
                    let result = results.iter().find_map(|message| match &***message {
                        Message::Tool(result) if result.call_id == call.id => Some(result),
                        _ => None,
                    });
                    if given.is_none_or(is_meant)
                        && let Some(result) = result
                    {
                        return Some(CallOutput {
                            id: call.id.clone(),
                            label: describe_call(&call.name, &call.arguments),
                            text: result.content.to_string(),
                            state: CallOutputState::Ended,
                        });
                    }
                }
                results.clear();
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(id: &str, name: &str) -> AgentEvent {
        AgentEvent::ToolRequested {
            call_id: CallId::new(id),
            name: name.into(),
            arguments: serde_json::json!({"command": "make"}).into(),
        }
    }

    fn output(id: &str, text: &str) -> AgentEvent {
        AgentEvent::ToolOutput {
            call_id: CallId::new(id),
            text: text.into(),
            base64: None,
            missed_bytes: 0,
        }
    }

    #[test]
    fn last_call_is_meant_unless_one_is_named() {
        let mut outputs = CallOutputs::default();
        assert_eq!(outputs.find(None), None);
        outputs.event(&requested("call_1", "shell"));
        outputs.event(&output("call_1", "one\n"));
        outputs.event(&requested("call_2", "read"));
        let found = |given| outputs.find(given).map(|call| call.id.to_string());
        assert_eq!(found(None).as_deref(), Some("call_2"));
        assert_eq!(found(Some("shell")).as_deref(), Some("call_1"));
        assert_eq!(found(Some("call_1")).as_deref(), Some("call_1"));
        assert_eq!(found(Some("call_3")), None);
        assert_eq!(outputs.find(Some("call_1")).unwrap().text, "one\n");
    }

    /// Regression: a call that a stop had ended together with its turn was running for ever.
    #[test]
    fn calls_of_a_stopped_turn_do_not_run() {
        let mut outputs = CallOutputs::default();
        outputs.event(&requested("call_1", "shell"));
        outputs.event(&output("call_1", "two\n"));
        assert_eq!(outputs.find(None).unwrap().state, CallOutputState::Runs);
        outputs.event(&AgentEvent::TurnEnded {
            turn: allstop_core::TurnNumber(1),
            stop_reason: allstop_core::StopReason::Cancelled,
            cause: None,
            usage: allstop_core::Usage::default(),
            unfinished: Vec::new(),
            lost: None,
        });
        let call = outputs.find(None).unwrap();
        assert_eq!(
            (&*call.text, call.state),
            ("two\n", CallOutputState::Stopped)
        );
    }

    #[test]
    fn memory_is_bounded_by_calls_and_bytes() {
        let mut outputs = CallOutputs::default();
        for n in 0..CALLS_MAX + 3 {
            outputs.event(&requested(&format!("call_{n}"), "shell"));
        }
        assert_eq!(outputs.ids().count(), CALLS_MAX);
        let id = format!("call_{}", CALLS_MAX + 2);
        for _ in 0..100 {
            outputs.event(&output(&id, &"é".repeat(4_000)));
        }
        outputs.event(&output(&id, "last"));
        let text = &outputs.find(None).unwrap().text;
        assert!(text.len() <= 2 * RUNNING_BYTES_MAX && text.ends_with("élast"));
    }
}
