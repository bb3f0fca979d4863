//! `session.mcp.oauth.handlePendingRequest`: answers of clients to requests for tokens of MCP servers.

use allstop_jsonrpc::RpcError;
use allstop_tools::mcp::McpToken;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, open_session, read, ready};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenParams {
    session_id: String,
    request_id: String,
    result: Value,
}

/// Answers a request. Reports whether the answer counted, and returns no error for a closed request. After an invalid
/// answer, the request stays open.
pub(super) fn answer(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: TokenParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let token = token_of(&params.result)?;
    ready(json!({ "success": session.answer_token(&params.request_id, token) }))
}

/// Reads an answer. The errors do not quote the answer, which contains a secret.
fn token_of(result: &Value) -> Result<Option<McpToken>, RpcError> {
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    match text("kind") {
        Some("cancelled") => return Ok(None),
        Some("token") => {}
        _ => {
            let message = "`result.kind` is neither `token` nor `cancelled`";
            return Err(RpcError::invalid_params(message));
        }
    }
    let kind = result.get("tokenType").filter(|kind| !kind.is_null());
    let is_bearer = |kind: &Value| {
        kind.as_str()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"))
    };
    if !kind.is_none_or(is_bearer) {
        let message = "`result.tokenType` is not offered: only `Bearer` is";
        return Err(RpcError::invalid_params(message));
    }
    let token = text("accessToken").and_then(McpToken::bearer);
    let token = token.ok_or_else(|| {
        RpcError::invalid_params("`result.accessToken` is missing, or a header cannot contain it")
    })?;
    Ok(Some(token))
}
