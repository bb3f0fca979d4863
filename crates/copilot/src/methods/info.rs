//! Requests about the server itself.

use std::time::SystemTime;

use allstop_core::Timestamp;
use allstop_jsonrpc::RpcError;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, read};
use crate::server::CopilotServer;

/// Version of the protocol that the SDKs check.
const PROTOCOL_VERSION: u32 = 3;

/// Context window in tokens that the server reports for a model whose context window it does not know. Older SDKs refuse
/// a list of models without this number.
const CONTEXT_WINDOW_DEFAULT: u64 = 128_000;

/// Returns the context window of the configured model, as far as the configuration or the model's name reveals it.
pub(super) fn context_window(server: &CopilotServer) -> u64 {
    let known = server.system().config().model.context_window();
    known.unwrap_or(CONTEXT_WINDOW_DEFAULT)
}

/// Describes a model in the form of the protocol.
pub(super) fn model_info(name: &str, context_window: u64) -> Value {
    json!({
        "id": name,
        "name": name,
        "capabilities": {
            "supports": { "vision": false, "reasoningEffort": false },
            "limits": { "max_context_window_tokens": context_window },
        },
    })
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let version = &cx.server.options().version;
    let answer = match method {
        "connect" => json!({
            "ok": true,
            "protocolVersion": PROTOCOL_VERSION,
            "version": version,
            "taskKinds": ["agent", "shell"],
        }),
        "ping" => {
            let params: Value = read(params)?;
            let message = params
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let now: Timestamp = SystemTime::now().into();
            json!({
                "message": format!("pong: {message}"),
                "timestamp": now,
                "protocolVersion": PROTOCOL_VERSION,
            })
        }
        "status.get" => json!({ "version": version, "protocolVersion": PROTOCOL_VERSION }),
        // The server authenticates itself at the model providers with their keys, so a client needs no login.
        "auth.getStatus" => json!({
            "isAuthenticated": true,
            "authType": "api-key",
            "statusMessage": "the server has the keys of the model providers",
        }),
        "models.list" => {
            let name = cx.server.system().model_name();
            json!({ "models": [model_info(name, context_window(cx.server))] })
        }
        unknown => return Err(RpcError::method_not_found(unknown)),
    };
    Ok(MethodAnswer::Now(Ok(answer)))
}
