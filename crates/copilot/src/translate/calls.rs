//! Tool calls of the running turn, as a client sees them. Each start of a call has one completion.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Message, ToolCall, TraceContext};
use serde_json::{Value, json};

use super::{EventTranslator, ExternalCall, PersistedEvent, TurnView};

/// Calls without a completion, and the open requests to the handlers of the clients' tools.
#[derive(Debug, Default)]
pub(super) struct ShownCalls {
    /// Calls whose start was sent to the client, in the order of the starts.
    started: Vec<ShownCall>,
    /// Requests that arrived before the start of their call was sent. This happens because requests and starts arrive
    /// through different channels.
    waiting: Vec<ExternalCall>,
    /// Requests that were sent and are not completed. Requests of a sub-agent may outlive the turn.
    sent: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct ShownCall {
    id: CallId,
    /// True if the work of the call has begun, so that its handler may be notified.
    runs: bool,
    request: Option<Arc<str>>,
    /// Outcome in the log, for a call that ended with its turn.
    outcome: Option<CallOutcome>,
}

impl ShownCalls {
    fn get(&mut self, id: &str) -> Option<&mut ShownCall> {
        self.started.iter_mut().find(|call| call.id.as_str() == id)
    }
}

pub(super) fn arguments_of(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(value) => Value::clone(value),
        Arguments::Malformed(text) => Value::from(&**text),
    }
}

/// Returns a call in the form in which an answer of the model contains the call.
pub(super) fn tool_request(call: &ToolCall) -> Value {
    json!({
        "toolCallId": call.id,
        "name": call.name,
        "arguments": arguments_of(&call.arguments),
        "type": "function",
    })
}

/// Returns the data of the event `tool.execution_complete`.
pub(super) fn completion(
    call: &str,
    outcome: CallOutcome,
    content: &str,
    is_rejected: bool,
) -> Value {
    let code = match outcome {
        CallOutcome::Succeeded => {
            let result = json!({ "content": content });
            return json!({ "toolCallId": call, "success": true, "result": result });
        }
        CallOutcome::Failed => "failure",
        CallOutcome::Denied if is_rejected => "rejected",
        CallOutcome::Denied => "denied",
        CallOutcome::Stopped => "aborted",
        CallOutcome::TimedOut => "timeout",
        CallOutcome::Unknown => "unknown",
    };
    let error = json!({ "message": content, "code": code });
    json!({ "toolCallId": call, "success": false, "error": error })
}

impl EventTranslator {
    pub(super) fn call_requested(&mut self, id: &CallId, tool: &Arc<str>, arguments: &Arguments) {
        if self.calls.get(id.as_str()).is_none() {
            self.calls.started.push(ShownCall {
                id: id.clone(),
                runs: false,
                request: None,
                outcome: None,
            });
        }
        let event = PersistedEvent::call_start(self.turn, id, tool, &arguments_of(arguments));
        self.persisted(event);
    }

    pub(super) fn call_started(&mut self, id: &CallId) {
        let Some(call) = self.calls.get(id.as_str()) else {
            // This client has missed the event that announced the call.
            return;
        };
        call.runs = true;
        let waiting = &mut self.calls.waiting;
        let at = waiting
            .iter()
            .position(|waiting| *waiting.call_id == *id.as_str());
        if let Some(at) = at {
            let external = waiting.remove(at);
            self.external_requested(&external);
        }
    }

    /// Handles a request for a client's tool. If the start of the call was not sent yet, the request waits for the
    /// start. For a call of a sub-agent, no start is ever sent.
    pub(super) fn external_requested(&mut self, external: &ExternalCall) {
        if external.is_of_sub_agent() {
            return self.send_to_handler(external);
        }
        // A call of a later turn can have the id of a call from a rolled-back turn. Therefore a call takes only one
        // request.
        let call = self.calls.get(&external.call_id);
        match call.filter(|call| call.runs && call.request.is_none()) {
            Some(call) => {
                call.request = Some(Arc::clone(&external.request_id));
                self.send_to_handler(external);
            }
            None => self.calls.waiting.push(external.clone()),
        }
    }

    /// Like [`EventTranslator::external_requested`], but for a call whose start event will not follow, because the
    /// client attached later or has missed the event.
    pub(super) fn external_pending(&mut self, external: &ExternalCall) {
        let request = &external.request_id;
        self.calls
            .waiting
            .retain(|waiting| waiting.request_id != *request);
        let is_new = !self.calls.sent.contains(request);
        if is_new && self.calls.get(&external.call_id).is_none() && !external.is_of_sub_agent() {
            self.calls.started.push(ShownCall {
                id: CallId::new(Arc::clone(&external.call_id)),
                runs: true,
                request: Some(Arc::clone(request)),
                outcome: None,
            });
        }
        self.send_to_handler(external);
    }

    fn send_to_handler(&mut self, external: &ExternalCall) {
        if !self.calls.sent.insert(Arc::clone(&external.request_id)) {
            return;
        }
        let mut data = json!({
            "requestId": external.request_id,
            "sessionId": self.options.session,
            "toolCallId": external.call_id,
            "toolName": external.tool,
            "arguments": external.arguments,
            "traceparent": external.trace.as_ref().map(TraceContext::traceparent),
        });
        if let Some(state) = external.trace.as_ref().and_then(TraceContext::tracestate) {
            data["tracestate"] = state.into();
        }
        // The event is ephemeral: a client that attaches later receives such an event for each request that is still
        // open.
        self.ephemeral("external_tool.requested", data);
    }

    pub(super) fn external_completed(&mut self, request: &Arc<str>, is_cancelled: bool) {
        self.calls
            .waiting
            .retain(|waiting| waiting.request_id != *request);
        if !self.calls.sent.contains(request) {
            return;
        }
        let mut calls = self.calls.started.iter();
        if is_cancelled && calls.any(|call| call.request.as_ref() == Some(request)) {
            // A turn that is stopped during a call can no longer be completed.
            self.abort_as_requested();
        }
        self.complete_request(request);
    }

    fn complete_request(&mut self, request: &Arc<str>) {
        if self.calls.sent.remove(request) {
            self.ephemeral("external_tool.completed", json!({ "requestId": request }));
        }
    }

    pub(super) fn call_finished(&mut self, id: &CallId, outcome: CallOutcome, content: &str) {
        let at = self.calls.started.iter().position(|call| call.id == *id);
        match at.map(|at| self.calls.started.remove(at)) {
            Some(ShownCall {
                request: Some(request),
                ..
            }) => self.complete_request(&request),
            Some(_) => {}
            // If the client attached in the middle of the turn, the history of the session contains the start of the
            // call.
            None if self.turn_view == TurnView::Rest => {}
            None => return,
        }
        let facts = &self.options.facts;
        let event = PersistedEvent::call_end(self.turn, id, outcome, content, facts);
        self.persisted(event);
    }

    /// Notes the outcome of an open call.
    pub(super) fn call_recorded(&mut self, id: &CallId, outcome: CallOutcome) {
        if let Some(call) = self.calls.get(id.as_str()) {
            call.outcome = Some(outcome);
        }
    }

    /// Sends completions for the open calls whose results a stopped turn keeps.
    pub(super) fn complete_kept_calls(&mut self, kept: &[Arc<Message>]) {
        for message in kept {
            let Message::Tool(result) = &**message else {
                continue;
            };
            if let Some(call) = self.calls.get(result.call_id.as_str()) {
                let outcome = call.outcome.unwrap_or(CallOutcome::Stopped);
                self.call_finished(&result.call_id, outcome, &result.content);
            }
        }
    }

    /// Sends completions for all calls that have none.
    pub(super) fn complete_calls(&mut self, outcome: CallOutcome, why: &str) {
        while let Some(call) = self.calls.started.first() {
            let id = call.id.clone();
            self.call_finished(&id, outcome, why);
        }
    }
}
