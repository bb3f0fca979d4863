//! Persisted events, which belong to the history of a session. Live events and events from the log are created by the
//! same functions.

use std::sync::Arc;

use allstop_core::record::{CallOutcome, SessionRecord, TurnOrigin};
use allstop_core::{
    CallId, Cause, CauseKind, MessageId, Receipt, SessionId, StopReason, Timestamp, ToolCall,
    TurnNumber, Usage,
};
use allstop_model::ReasoningEffort;
use serde_json::{Value, json};
use uuid::Uuid;

use super::calls;
use crate::event::{CopilotEvent, event_id};
use crate::hosted::{ClientFacts, SessionNote};

/// A persisted event without its time and its parent.
#[derive(Debug)]
pub(crate) struct PersistedEvent {
    kind: &'static str,
    /// Position of the event in the session. The id of the event is derived from this position.
    place: String,
    data: Value,
}

fn turn_start_place(turn: TurnNumber) -> String {
    format!("turn/{turn}/user")
}

/// A summary that has replaced the oldest messages of a conversation.
#[derive(Debug)]
pub(super) struct Compaction<'a> {
    pub at: Timestamp,
    pub messages_dropped: u32,
    pub summary: Option<&'a Arc<str>>,
    pub usage: Usage,
}

impl<'a> Compaction<'a> {
    /// Returns the compaction that a record reports, if it reports one.
    pub(super) fn of(record: &'a SessionRecord) -> Option<Self> {
        match record {
            SessionRecord::Compacted {
                at,
                messages_dropped,
                summary,
                usage,
                ..
            } => Some(Self {
                at: *at,
                messages_dropped: *messages_dropped,
                summary: summary.as_ref(),
                usage: *usage,
            }),
            _ => None,
        }
    }
}

impl PersistedEvent {
    fn new(kind: &'static str, place: String, data: Value) -> Self {
        Self { kind, place, data }
    }

    pub(crate) fn at(
        self,
        session: &SessionId,
        timestamp: Timestamp,
        parent_id: Option<Uuid>,
    ) -> CopilotEvent {
        CopilotEvent {
            id: event_id(session, &self.place),
            timestamp,
            parent_id,
            kind: self.kind,
            data: self.data,
            ephemeral: false,
            agent_id: None,
        }
    }

    pub(super) fn session_start(
        session: &SessionId,
        version: &str,
        (model, effort): (Option<&Arc<str>>, Option<ReasoningEffort>),
        (at, folder): (Timestamp, &str),
    ) -> Self {
        let mut data = json!({
            "sessionId": session,
            "version": 1,
            "producer": "allstop",
            "copilotVersion": version,
            "startTime": at,
            "selectedModel": model,
            "context": { "cwd": folder },
        });
        if let Some(effort) = effort {
            data["reasoningEffort"] = json!(effort);
        }
        Self::new("session.start", "start".to_owned(), data)
    }

    pub(super) fn turn_start(
        turn: TurnNumber,
        input: &str,
        message: Option<&MessageId>,
        origin: TurnOrigin,
    ) -> Self {
        let (kind, data) = match origin {
            TurnOrigin::User => (
                "user.message",
                json!({ "content": input, "messageId": message }),
            ),
            TurnOrigin::Background => (
                "session.info",
                json!({ "infoType": "background", "message": input }),
            ),
        };
        Self::new(kind, turn_start_place(turn), data)
    }

    /// Adds the fields that a client has sent with a message, such as its attachments.
    pub(super) fn with_facts(mut self, facts: &ClientFacts, message: Option<&MessageId>) -> Self {
        if let (Value::Object(data), Some(message)) = (&mut self.data, message) {
            data.extend(facts.message(message));
        }
        self
    }

    /// Returns the events of a compaction: its start and its end. The log contains only the end.
    pub(super) fn compaction(compacted: &Compaction<'_>) -> [Self; 2] {
        let place = format!("compaction/{}", compacted.at.unix_ms());
        let complete = json!({
            "success": true,
            "messagesRemoved": compacted.messages_dropped,
            "summaryContent": compacted.summary,
            "compactionTokensUsed": {
                "inputTokens": compacted.usage.input_tokens,
                "outputTokens": compacted.usage.output_tokens,
            },
        });
        [
            Self::new(
                "session.compaction_start",
                format!("{place}/start"),
                json!({}),
            ),
            Self::new(
                "session.compaction_complete",
                format!("{place}/complete"),
                complete,
            ),
        ]
    }

    pub(crate) fn note(note: &SessionNote) -> Self {
        let place = format!("note/{}/{}", note.opening, note.number);
        Self::new(note.kind, place, note.data.clone())
    }

    /// Returns the id of the event for the message that began a turn.
    pub(crate) fn turn_start_id(session: &SessionId, turn: TurnNumber) -> Uuid {
        event_id(session, &turn_start_place(turn))
    }

    /// Returns the event of a message that was added to a running turn.
    pub(super) fn steered(message: &MessageId, text: &str) -> Self {
        let data = json!({ "content": text, "messageId": message, "delivery": "steering" });
        Self::new("user.message", format!("message/{message}"), data)
    }

    pub(super) fn step_start(turn: TurnNumber, step: u32, model: &str) -> Self {
        let data = json!({ "turnId": turn_id(step), "model": model });
        let place = format!("turn/{turn}/step/{step}/start");
        Self::new("assistant.turn_start", place, data)
    }

    pub(super) fn step_end(turn: TurnNumber, step: u32) -> Self {
        let data = json!({ "turnId": turn_id(step) });
        let place = format!("turn/{turn}/step/{step}/end");
        Self::new("assistant.turn_end", place, data)
    }

    /// Returns the event with the model's answer in a step.
    pub(crate) fn answer(
        session: &SessionId,
        (turn, step): (TurnNumber, u32),
        (text, calls): (&str, &[ToolCall]),
        message: Option<&MessageId>,
    ) -> Self {
        let requests: Vec<_> = calls.iter().map(calls::tool_request).collect();
        let data = json!({
            "messageId": answer_message_id(session, turn, step),
            "content": text,
            "toolRequests": requests,
            "turnId": turn_id(step),
            "originatingMessageId": message,
        });
        let place = format!("turn/{turn}/step/{step}/answer");
        Self::new("assistant.message", place, data)
    }

    pub(super) fn call_start(turn: TurnNumber, id: &CallId, tool: &str, arguments: &Value) -> Self {
        let data = json!({ "toolCallId": id, "toolName": tool, "arguments": arguments });
        let place = format!("turn/{turn}/call/{id}/start");
        Self::new("tool.execution_start", place, data)
    }

    pub(super) fn call_end(
        turn: TurnNumber,
        id: &CallId,
        outcome: CallOutcome,
        content: &str,
        facts: &ClientFacts,
    ) -> Self {
        let is_rejected = facts.is_rejected(id.as_str());
        let data = calls::completion(id.as_str(), outcome, content, is_rejected);
        let place = format!("turn/{turn}/call/{id}/complete");
        Self::new("tool.execution_complete", place, data)
    }

    pub(super) fn abort(turn: TurnNumber, reason: &str) -> Self {
        let place = format!("turn/{turn}/abort");
        Self::new("abort", place, json!({ "reason": reason }))
    }

    pub(super) fn receipt(turn: TurnNumber, receipt: &Arc<Receipt>) -> Self {
        let data = json!({ "turn": turn, "receipt": receipt });
        Self::new("allstop.receipt", format!("turn/{turn}/receipt"), data)
    }

    /// Returns the event of a turn's failure; `None` if the turn was completed or stopped.
    pub(super) fn failure(
        turn: TurnNumber,
        reason: StopReason,
        cause: Option<&Cause>,
        message: Option<&MessageId>,
    ) -> Option<Self> {
        let kind = failure_of(reason)?;
        let text = cause.map_or_else(|| kind.to_owned(), ToString::to_string);
        let data = json!({
            "errorType": kind,
            "message": text,
            "originatingMessageId": message,
        });
        let place = format!("turn/{turn}/error");
        Some(Self::new("session.error", place, data))
    }
}

/// Name of a step in the SDKs, which call a step a turn.
fn turn_id(step: u32) -> String {
    step.saturating_sub(1).to_string()
}

/// Id of the model's answer in a step. The events with the pieces of the answer refer to this id.
pub(super) fn answer_message_id(session: &SessionId, turn: TurnNumber, step: u32) -> Uuid {
    event_id(session, &format!("turn/{turn}/step/{step}/message"))
}

/// Returns the type of a turn's failure; `None` if the turn was completed or stopped.
pub(super) fn failure_of(reason: StopReason) -> Option<&'static str> {
    Some(match reason {
        StopReason::Completed | StopReason::Cancelled | StopReason::Shutdown => return None,
        StopReason::Timeout => "timeout",
        StopReason::Guardrail => "guardrail",
        StopReason::MaxBudgetReached => "budget",
        StopReason::Error => "query",
        StopReason::MaxStepsReached | StopReason::MaxTurnsReached | StopReason::LoopDetected => {
            "limit"
        }
    })
}

/// Returns the SDKs' reason of an abort for a cause. The SDKs know four reasons. The receipt contains the exact cause.
pub(super) fn abort_reason(cause: &Cause) -> &'static str {
    match cause.kind {
        CauseKind::User | CauseKind::Superseded => "user_initiated",
        _ => "remote_command",
    }
}
