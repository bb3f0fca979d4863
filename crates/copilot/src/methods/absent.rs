//! Parts of the official runtime that this server does not have: schedules, extensions, sessions in a cloud,
//! completions of the typed text. Their lists are empty, and requests to change them are refused.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, open_session, read};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AbsentParams {
    session_id: String,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let answer = match method {
        "session.schedule.list" => json!({ "entries": [] }),
        "session.schedule.stop" => json!({}),
        "session.extensions.list" => json!({ "extensions": [] }),
        "session.extensions.enable"
        | "session.extensions.disable"
        | "session.extensions.reload"
        | "session.extensions.sendAttachmentsToMessage" => {
            return Err(RpcError::invalid_params("Extensions not available"));
        }
        "session.completions.getTriggerCharacters" => json!({ "triggerCharacters": [] }),
        // Every session is local.
        "session.visibility.get" | "session.visibility.set" => json!({ "synced": false }),
        // The server has no language servers.
        "session.lsp.initialize" => serde_json::Value::Null,
        "session.completions.request" => json!({ "items": [] }),
        unknown => return Err(RpcError::method_not_found(unknown)),
    };
    let params: AbsentParams = read(params)?;
    open_session(cx, &params.session_id)?;
    Ok(MethodAnswer::Now(Ok(answer)))
}
