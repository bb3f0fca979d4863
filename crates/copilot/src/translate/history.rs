//! Events of the turns that a log has, with the ids that they had while they ran.

use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::{Message, SessionId, Timestamp, TurnNumber};
use serde_json::json;

use super::{answer, calls, user_message};
use crate::event::{CopilotEvent, event_id};

/// Events for the records of a session, in their order.
pub(crate) fn history(session: &SessionId, records: &[SessionRecord]) -> Vec<CopilotEvent> {
    let mut history = History {
        session,
        events: Vec::new(),
    };
    for record in records {
        history.record(record);
    }
    history.events
}

struct History<'a> {
    session: &'a SessionId,
    events: Vec<CopilotEvent>,
}

impl History<'_> {
    fn push(&mut self, event: CopilotEvent, at: Timestamp) {
        let parent_id = self.events.last().map(|event| event.id);
        self.events.push(CopilotEvent {
            parent_id,
            timestamp: at,
            ..event
        });
    }

    fn event(&mut self, kind: &'static str, place: &str, data: serde_json::Value, at: Timestamp) {
        let event = CopilotEvent {
            id: event_id(self.session, place),
            timestamp: at,
            parent_id: None,
            kind,
            data,
            ephemeral: false,
            agent_id: None,
        };
        self.push(event, at);
    }

    fn record(&mut self, record: &SessionRecord) {
        match record {
            SessionRecord::TurnStarted {
                turn,
                at,
                input,
                message,
                origin,
                ..
            } => {
                let (kind, data) = user_message(input, message.as_ref(), *origin);
                self.event(kind, &format!("turn/{turn}/user"), data, *at);
            }
            SessionRecord::TurnCommitted {
                turn, at, messages, ..
            } => self.messages(*turn, messages.iter().map(|message| &**message), *at),
            SessionRecord::TurnStopped {
                turn,
                at,
                kept,
                receipt,
                ..
            } => {
                self.messages(*turn, kept.iter().map(|message| &**message), *at);
                let data = json!({ "reason": "user_initiated" });
                self.event("abort", &format!("turn/{turn}/abort"), data, *at);
                if let Some(receipt) = receipt {
                    let data = json!({ "turn": turn, "receipt": receipt });
                    self.event(
                        "allstop.receipt",
                        &format!("turn/{turn}/receipt"),
                        data,
                        *at,
                    );
                }
            }
            _ => {}
        }
    }

    fn messages<'m>(
        &mut self,
        turn: TurnNumber,
        messages: impl Iterator<Item = &'m Message>,
        at: Timestamp,
    ) {
        let mut step = 0;
        for message in messages {
            match message {
                Message::Assistant { text, tool_calls } => {
                    step += 1;
                    let event = answer(self.session, (turn, step), (text, tool_calls), None);
                    self.push(event, at);
                    for call in tool_calls {
                        let data = json!({
                            "toolCallId": call.id,
                            "toolName": call.name,
                            "arguments": calls::arguments_of(&call.arguments),
                        });
                        let place = format!("turn/{turn}/call/{}/start", call.id);
                        self.event("tool.execution_start", &place, data, at);
                    }
                }
                Message::Tool(result) => {
                    let outcome = if result.is_error {
                        CallOutcome::Failed
                    } else {
                        CallOutcome::Succeeded
                    };
                    let data = calls::completion(result.call_id.as_str(), outcome, &result.content);
                    let place = format!("turn/{turn}/call/{}/complete", result.call_id);
                    self.event("tool.execution_complete", &place, data, at);
                }
                _ => {}
            }
        }
    }
}
