//! Tool calls of the running turn: each start has one completion.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Cause, ToolCall};
use serde_json::{Value, json};

use super::{EventTranslator, ExternalCall, PersistedEvent};

/// Calls that have no completion yet.
#[derive(Debug, Default)]
pub(super) struct ShownCalls {
    /// In the order of their requests.
    order: Vec<CallId>,
    by_id: HashMap<CallId, ShownCall>,
    /// Requests of the calls of sub-agents, of which the session's own events do not tell. They may outlive the turn.
    of_sub_agents: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct ShownCall {
    tool: Arc<str>,
    arguments: Value,
    is_started: bool,
    external: Option<ExternalCall>,
    /// True while its handler works.
    is_handled: bool,
}

impl ShownCalls {
    fn entry(&mut self, id: &CallId) -> &mut ShownCall {
        if !self.by_id.contains_key(id) {
            self.order.push(id.clone());
        }
        self.by_id.entry(id.clone()).or_insert_with(|| ShownCall {
            tool: "".into(),
            arguments: Value::Null,
            is_started: false,
            external: None,
            is_handled: false,
        })
    }
}

pub(super) fn arguments_of(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(value) => Value::clone(value),
        Arguments::Malformed(text) => Value::from(&**text),
    }
}

/// A call as the model's answer requests it.
pub(super) fn tool_request(call: &ToolCall) -> Value {
    json!({
        "toolCallId": call.id,
        "name": call.name,
        "arguments": arguments_of(&call.arguments),
        "type": "function",
    })
}

/// Data of `tool.execution_complete`.
pub(super) fn completion(call: &str, outcome: CallOutcome, content: &str) -> Value {
    let code = match outcome {
        CallOutcome::Succeeded => {
            let result = json!({ "content": content });
            return json!({ "toolCallId": call, "success": true, "result": result });
        }
        CallOutcome::Failed => "failure",
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
        let arguments = arguments_of(arguments);
        let call = self.calls.entry(id);
        (call.tool, call.arguments) = (Arc::clone(tool), arguments.clone());
        let event = PersistedEvent::call_start(self.turn, id, tool, &arguments);
        self.persisted(event);
    }

    pub(super) fn call_started(&mut self, id: &CallId) {
        let call = self.calls.entry(id);
        call.is_started = true;
        if let Some(external) = call.external.clone() {
            self.show_external(&external);
        }
    }

    /// The request may be here before the start of its call, which comes on another way.
    pub(super) fn external_requested(&mut self, external: &ExternalCall) {
        if external.is_of_sub_agent() {
            return self.sub_agent_requested(external);
        }
        let call = self
            .calls
            .entry(&CallId::new(Arc::clone(&external.call_id)));
        call.external = Some(external.clone());
        if call.is_started {
            self.show_external(external);
        }
    }

    /// Its start is in the past.
    pub(super) fn external_pending(&mut self, external: &ExternalCall) {
        if external.is_of_sub_agent() {
            return self.sub_agent_requested(external);
        }
        let call = self
            .calls
            .entry(&CallId::new(Arc::clone(&external.call_id)));
        call.external.get_or_insert_with(|| external.clone());
        call.is_started = true;
        if call.tool.is_empty() {
            call.tool = Arc::clone(&external.tool);
            call.arguments = Value::clone(&external.arguments);
        }
        self.show_external(external);
    }

    fn sub_agent_requested(&mut self, external: &ExternalCall) {
        let request = Arc::clone(&external.request_id);
        if self.calls.of_sub_agents.insert(request) {
            self.tell_handler(external);
        }
    }

    fn show_external(&mut self, external: &ExternalCall) {
        let call = self
            .calls
            .entry(&CallId::new(Arc::clone(&external.call_id)));
        if !std::mem::replace(&mut call.is_handled, true) {
            self.tell_handler(external);
        }
    }

    fn tell_handler(&mut self, external: &ExternalCall) {
        let data = json!({
            "requestId": external.request_id,
            "sessionId": self.options.session,
            "toolCallId": external.call_id,
            "toolName": external.tool,
            "arguments": external.arguments,
            "traceparent": external.trace,
        });
        // Who comes later is told of the requests that are still open.
        self.ephemeral("external_tool.requested", data);
    }

    pub(super) fn external_completed(&mut self, request_id: &Arc<str>) {
        let is_it = |call: &&mut ShownCall| {
            let external = call.external.as_ref();
            call.is_handled && external.is_some_and(|call| call.request_id == *request_id)
        };
        let call = self.calls.by_id.values_mut().find(is_it);
        let was_handled = match call {
            Some(call) => std::mem::replace(&mut call.is_handled, false),
            None => self.calls.of_sub_agents.remove(request_id),
        };
        if was_handled {
            self.ephemeral(
                "external_tool.completed",
                json!({ "requestId": request_id }),
            );
        }
    }

    pub(super) fn call_finished(&mut self, id: &CallId, outcome: CallOutcome, content: &str) {
        let Some(call) = self.calls.by_id.remove(id) else {
            return;
        };
        self.calls.order.retain(|open| open != id);
        if let Some(external) = call.external.filter(|_| call.is_handled) {
            let data = json!({ "requestId": external.request_id });
            self.ephemeral("external_tool.completed", data);
        }
        let event = PersistedEvent::call_end(self.turn, id, outcome, content);
        self.persisted(event);
    }

    /// Completes the calls that a stop has left without a result.
    pub(super) fn complete_calls(&mut self, cause: Option<&Cause>) {
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        for id in std::mem::take(&mut self.calls.order) {
            let content = format!("the call was stopped with its turn{cause}");
            self.call_finished(&id, CallOutcome::Stopped, &content);
        }
    }
}
