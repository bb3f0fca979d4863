//! `session.ui.*` for the switch to the auto model: the answer to a question, and the handlers that answer its event.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, SessionIdParams, open_session, read, ready};
use crate::hosted::SwitchConsent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsentParams {
    session_id: String,
    request_id: String,
    response: SwitchConsent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandleParams {
    session_id: String,
    handle: String,
}

/// Answers a question. Reports whether the answer counted.
pub(super) fn answer(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ConsentParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let open = &session.auto_mode.open;
    ready(json!({ "success": open.answer(&params.request_id, params.response) }))
}

pub(super) fn register(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SessionIdParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    ready(json!({ "handle": session.auto_mode.register(cx.client.id)? }))
}

pub(super) fn unregister(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: HandleParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    ready(json!({ "unregistered": session.auto_mode.unregister(&params.handle) }))
}
