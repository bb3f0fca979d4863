//! Requests about the server itself.

use std::time::SystemTime;

use allstop_core::Timestamp;
use allstop_jsonrpc::RpcError;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, read};

/// Version of the protocol that the SDKs check.
const PROTOCOL_VERSION: u32 = 3;

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
                "message": message,
                "timestamp": now.unix_ms(),
                "protocolVersion": PROTOCOL_VERSION,
            })
        }
        "status.get" => json!({ "version": version, "protocolVersion": PROTOCOL_VERSION }),
        // The server authenticates itself at the model providers with their keys, so a client needs no login.
        "auth.getStatus" => json!({ "isAuthenticated": true, "authType": "api-key" }),
        "models.list" => {
            let name = cx.server.system().model_name();
            let model = json!({ "id": name, "name": name, "capabilities": {} });
            json!({ "models": [model] })
        }
        unknown => return Err(RpcError::method_not_found(unknown)),
    };
    Ok(MethodAnswer::Now(Ok(answer)))
}
