//! Answers of clients to questions that this server never asks. No request waits for such an answer, so each answer is late.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, open_session, read};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingParams {
    session_id: String,
    #[serde(rename = "requestId")]
    _request_id: String,
}

pub(super) fn late(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: PendingParams = read(params)?;
    open_session(cx, &params.session_id)?;
    Ok(MethodAnswer::Now(Ok(json!({ "success": false }))))
}

/// Refuses the start of a process for an agent.
pub(super) fn no_agents(
    _cx: &MethodCx<'_>,
    _params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let message = "`agentRegistry.spawn` is not enabled: the server starts no processes for agents";
    Err(RpcError::invalid_params(message))
}
