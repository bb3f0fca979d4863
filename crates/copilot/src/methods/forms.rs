//! `session.ui.*`: forms that the program of a client has the user fill in.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, later, open_session, read};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FormParams {
    session_id: String,
    message: Option<String>,
    requested_schema: Option<Value>,
}

/// `session.ui.elicitation`: asks the clients that fill in forms, and returns the first answer.
pub(super) fn ask(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: FormParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    if !session.has_forms() {
        let message = "no client of the session fills in forms: set an elicitation handler";
        return Err(RpcError::invalid_params(message));
    }
    let request = session.pending.add();
    let data = json!({
        "requestId": request.id(),
        "message": params.message.unwrap_or_default(),
        "requestedSchema": params.requested_schema,
        "mode": "form",
    });
    session.send_ephemeral("elicitation.requested", data);
    Ok(later(async move {
        let id = request.id().to_owned();
        let cancelled = || json!({ "action": "cancel" });
        let answer = tokio::select! {
            answer = request.answer() => answer.unwrap_or_else(cancelled),
            () = session.session.closed() => cancelled(),
        };
        let mut completed = json!({ "requestId": id, "action": answer["action"] });
        if answer["content"].is_object() {
            completed["content"] = answer["content"].clone();
        }
        session.send_ephemeral("elicitation.completed", completed);
        Ok(answer)
    }))
}
