//! Answers of clients to requests for tools and to permission questions.

use allstop_core::ids::QuestionId;
use allstop_core::record::CallOutcome;
use allstop_jsonrpc::RpcError;
use allstop_session::AnswerResult;
use allstop_tools::external::Delivery;
use allstop_tools::{PermissionAnswer, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, open_session, read};
use crate::translate::{HostEvent, UNANSWERED};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolParams {
    session_id: String,
    request_id: String,
    result: Option<Value>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionParams {
    session_id: String,
    request_id: String,
    result: PermissionResultParams,
}

#[derive(Deserialize)]
struct PermissionResultParams {
    kind: String,
    /// The person's reason for a rejection.
    feedback: Option<String>,
}

fn success(is_success: bool) -> MethodAnswer {
    MethodAnswer::Now(Ok(json!({ "success": is_success })))
}

/// Result for the model if a handler failed without a text for the model.
const HANDLER_FAILED: &str =
    "the handler of the tool failed, and its program gave no reason for the model";

/// Converts a tool's result in the protocol, which is text or an object, to the answer for the model.
///
/// The SDKs put the text of an exception into `error`. That text is for the program and can contain its secrets, so the
/// model never gets it: the model reads only `textResultForLlm`.
fn answer_of(result: Option<Value>, error: Option<&str>) -> Result<ToolOutput, ToolError> {
    let output = |content: String| ToolOutput::from(content);
    if error.is_some() {
        return Err(ToolError::new(HANDLER_FAILED));
    }
    let Some(Value::Object(result)) = result else {
        return Ok(match result {
            Some(Value::String(text)) => output(text),
            Some(other) => output(other.to_string()),
            None => output(String::new()),
        });
    };
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    let content = text("textResultForLlm");
    let outcome = match text("resultType") {
        None if text("error").is_some() => CallOutcome::Failed,
        None | Some("success") => CallOutcome::Succeeded,
        Some("denied" | "rejected") => CallOutcome::Denied,
        Some("timeout") => CallOutcome::TimedOut,
        Some(_) => CallOutcome::Failed,
    };
    if outcome != CallOutcome::Succeeded {
        return Err(ToolError {
            outcome,
            ..ToolError::new(content.unwrap_or(HANDLER_FAILED))
        });
    }
    Ok(match content {
        Some(content) => output(content.to_owned()),
        None => output(Value::Object(result).to_string()),
    })
}

pub(super) fn tool(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: ToolParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let kind = params.result.as_ref();
    let kind = kind.and_then(|result| result.get("resultType")?.as_str());
    if kind == Some("rejected") {
        // The event of the call's end may be sent before this function returns.
        session.note_rejected(&params.request_id);
    }
    let answer = answer_of(params.result, params.error.as_deref());
    let delivery = session.tools.answer(&params.request_id, answer);
    if delivery == Delivery::Delivered {
        session.send_host_event(HostEvent::ExternalCompleted {
            request_id: params.request_id.into(),
            is_cancelled: false,
        });
    }
    // A late answer has no effect, because the call has ended.
    Ok(success(delivery == Delivery::Delivered))
}

/// Answers a permission question. Reports whether the answer counted, and returns no error for a closed question: after
/// an error, the SDKs would answer again.
pub(super) fn permission(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: PermissionParams = read(params)?;
    let Ok(session) = open_session(cx, &params.session_id) else {
        return Ok(success(false));
    };
    let answer = match params.result.kind.as_str() {
        "approve-once" | "approved" => PermissionAnswer::AllowOnce,
        "approve-for-session"
        | "approved-for-session"
        | "approve-for-location"
        | "approved-for-location"
        | "approve-permanently" => PermissionAnswer::AllowForSession,
        "user-not-available" | UNANSWERED => PermissionAnswer::Unanswered,
        _ => PermissionAnswer::deny_because(params.result.feedback.as_deref().unwrap_or_default()),
    };
    let question = QuestionId::new(params.request_id);
    if answer == PermissionAnswer::Unanswered {
        let open_for = cx.server.options().unattended_max;
        if session.decline(&question, cx.client.id, open_for) {
            // The SDKs do not report the answer, so it is not a failure of the handler.
            return Ok(success(true));
        }
    }
    if answer == PermissionAnswer::deny() {
        let questions = session.session.questions();
        let asked = questions.iter().find(|asked| asked.id == question);
        if let Some(asked) = asked {
            session.facts.add_rejected(asked.question.call_id.as_str());
        }
    }
    let answered = session.session.answer(&question, answer);
    Ok(success(answered == AnswerResult::Taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_text_or_objects() {
        let content = |result: Value| {
            answer_of(Some(result), None)
                .map(|output| output.content.to_string())
                .map_err(|error| error.message)
        };
        assert_eq!(content(json!("plain")), Ok("plain".to_owned()));
        let object = |kind: &str| json!({ "textResultForLlm": "text", "resultType": kind });
        assert_eq!(content(object("success")), Ok("text".to_owned()));
        assert_eq!(content(object("denied")), Err("text".to_owned()));
        let outcome = |kind: &str| {
            let answer = answer_of(Some(object(kind)), None);
            answer.map_or_else(|error| error.outcome, |_| CallOutcome::Succeeded)
        };
        assert_eq!(outcome("rejected"), CallOutcome::Denied);
        assert_eq!(outcome("timeout"), CallOutcome::TimedOut);
        assert_eq!(outcome("failure"), CallOutcome::Failed);
        assert_eq!(content(json!({ "n": 1 })), Ok("{\"n\":1}".to_owned()));
        let failed = answer_of(None, Some("boom"));
        assert_eq!(
            failed.map_err(|error| error.message),
            Err(HANDLER_FAILED.to_owned())
        );
    }
}
