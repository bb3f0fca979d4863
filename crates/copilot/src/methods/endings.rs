//! `session.log`, `session.suspend` and `session.shutdown`.

use allstop_core::{Cause, CauseKind};
use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, later, open_session, read, ready, whole};
use super::models::without_nulls;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogParams {
    session_id: String,
    message: String,
    level: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    ephemeral: bool,
    url: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndParams {
    session_id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    reason: Option<String>,
}

/// `session.log`: adds a message of the program to the events of the session.
pub(super) fn log(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: LogParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let (event, field) = match params.level.as_deref() {
        None | Some("info") => ("session.info", "infoType"),
        Some("warning") => ("session.warning", "warningType"),
        Some("error") => ("session.error", "errorType"),
        Some(other) => {
            let message = format!("unknown level {other:?}: use info, warning or error");
            return Err(RpcError::invalid_params(message));
        }
    };
    let mut data = json!({ "message": params.message, "url": params.url });
    data[field] = params
        .kind
        .unwrap_or_else(|| "notification".to_owned())
        .into();
    let data = without_nulls(data);
    let id = if params.ephemeral {
        session.send_ephemeral(event, data);
        uuid::Uuid::from_u128(ulid::Ulid::generate().0)
    } else {
        session.note(event, data)
    };
    ready(json!({ "eventId": id }))
}

/// `session.suspend` and `session.shutdown`: stops all work of a session and closes the session, which can be resumed later.
/// The answer contains the receipt.
fn end(cx: &MethodCx<'_>, params: &EndParams, cause: Cause) -> Result<MethodAnswer, RpcError> {
    let session = open_session(cx, &params.session_id)?;
    let closing = cx.server.close_session_if(session.id(), |_| true, cause);
    Ok(later(async move {
        let receipt = match closing {
            Some(closing) => Some(whole(Some(closing)).await?),
            None => None,
        };
        Ok(json!({ "receipt": receipt }))
    }))
}

pub(super) fn suspend(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: EndParams = read(params)?;
    let cause = Cause::new(CauseKind::User)
        .by("copilot")
        .detail("suspended");
    end(cx, &params, cause)
}

pub(super) fn shutdown(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: EndParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let kind = params.kind.as_deref().unwrap_or("routine");
    let mut data = json!({
        "shutdownType": kind,
        "sessionStartTime": session.opened_at.unix_ms(),
        "totalApiDurationMs": 0,
        "totalPremiumRequests": 0,
        "codeChanges": { "linesAdded": 0, "linesRemoved": 0, "filesModified": [] },
        "modelMetrics": {},
        "currentModel": session.model_name(),
    });
    if kind == "error" {
        data["errorReason"] = params.reason.clone().into();
    }
    session.note("session.shutdown", without_nulls(data));
    let reason = params
        .reason
        .clone()
        .unwrap_or_else(|| "shut down".to_owned());
    let cause = Cause::new(CauseKind::User).by("copilot").detail(reason);
    end(cx, &params, cause)
}
