//! Permission questions in the form that the SDKs' handlers read.

use allstop_core::ids::QuestionId;
use allstop_session::OpenQuestion;
use allstop_tools::{PermissionAnswer, PermissionQuestion, names};
use serde_json::{Value, json};

use super::EventTranslator;

/// Kind of the result for a permission question that no person has answered.
pub(crate) const UNANSWERED: &str = "denied-no-approval-rule-and-could-not-request-from-user";

impl EventTranslator {
    pub(super) fn permission_asked(&mut self, question: &OpenQuestion) {
        let request = permission_request(&question.question);
        let mut data = json!({ "requestId": question.id, "permissionRequest": request });
        if self.options.facts.approves_all() {
            // The server answers, and no handler of a client.
            data["resolvedByHook"] = true.into();
        }
        // The event is ephemeral, because the log contains no permission questions.
        self.ephemeral("permission.requested", data);
    }

    pub(super) fn permission_answered(
        &mut self,
        id: &QuestionId,
        answer: Option<&PermissionAnswer>,
    ) {
        let kind = match answer {
            // The kind `approved-for-session` would have to specify the approved calls, so `approved` is used.
            Some(PermissionAnswer::AllowOnce | PermissionAnswer::AllowForSession) => "approved",
            Some(PermissionAnswer::Deny { .. }) => "denied-interactively-by-user",
            Some(PermissionAnswer::Unanswered) => UNANSWERED,
            None => "cancelled",
        };
        let data = json!({ "requestId": id, "result": { "kind": kind } });
        self.ephemeral("permission.completed", data);
    }
}

/// Describes the question about a call for the client's permission handler.
pub(crate) fn permission_request(question: &PermissionQuestion) -> Value {
    let PermissionQuestion {
        tool,
        arguments,
        text,
        ..
    } = question;
    let mut request = request_of(tool, arguments, text);
    if let Value::Object(request) = &mut request {
        request.insert("toolCallId".to_owned(), question.call_id.as_str().into());
    }
    request
}

/// Describes a call for the client's permission handler. `text` is the question as one readable line.
fn request_of(tool: &str, arguments: &Value, text: &str) -> Value {
    let text_of = |name: &str| {
        arguments
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match tool {
        "bash" | names::SHELL => json!({
            "kind": "shell",
            "fullCommandText": text_of("command"),
            "intention": text_of("description"),
            "commands": [],
            "possiblePaths": [],
            "possibleUrls": [],
            "hasWriteFileRedirection": false,
            "canOfferSessionApproval": true,
        }),
        names::EDIT | "create" | names::WRITE => json!({
            "kind": "write",
            "fileName": text_of("path"),
            "intention": text,
            "diff": "",
            "canOfferSessionApproval": true,
        }),
        "view" | names::READ | names::LIST | names::GREP | names::GLOB => {
            json!({ "kind": "read", "path": text_of("path"), "intention": text })
        }
        other => match other.split_once("__") {
            Some((server, tool)) => json!({
                "kind": "mcp",
                "serverName": server,
                "toolName": tool,
                "toolTitle": tool,
                "readOnly": false,
                "args": arguments,
            }),
            None => json!({
                "kind": "custom-tool",
                "toolName": other,
                "toolDescription": text,
                "args": arguments,
            }),
        },
    }
}
