//! `session.canvas.*`: views that the clients of a session declare.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, SessionIdParams, later, open_session, read, ready};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstanceParams {
    instance_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActionParams {
    instance_id: String,
    action_name: String,
    input: Option<Value>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let target: SessionIdParams = read(params)?;
    let session = open_session(cx, &target.session_id)?;
    match method {
        "session.canvas.list" => ready(json!({ "canvases": session.declared_canvases() })),
        "session.canvas.listOpen" => ready(json!({ "openCanvases": session.open_canvases() })),
        "session.canvas.open" => {
            let opening = read(params)?;
            Ok(later(async move { session.open_canvas(opening).await }))
        }
        "session.canvas.close" => {
            let InstanceParams { instance_id } = read(params)?;
            Ok(later(async move {
                session.close_canvas(&instance_id).await?;
                Ok(json!({}))
            }))
        }
        "session.canvas.action.invoke" => {
            let action: ActionParams = read(params)?;
            Ok(later(async move {
                let (id, name) = (&action.instance_id, &action.action_name);
                let result = session.invoke_canvas(id, name, action.input).await?;
                Ok(json!({ "result": result }))
            }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}
