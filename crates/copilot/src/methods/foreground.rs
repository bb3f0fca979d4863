//! The session in the foreground of a terminal. This server has no terminal.

use allstop_jsonrpc::RpcError;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx};

#[expect(
    clippy::unnecessary_wraps,
    reason = "the table of methods has this type"
)]
pub(super) fn get(
    _cx: &MethodCx<'_>,
    _params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    Ok(MethodAnswer::Now(Ok(json!({}))))
}

pub(super) fn set(
    _cx: &MethodCx<'_>,
    _params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    // Programs search the error for these words of the official runtime.
    let message = "Not running in TUI+server mode: the server has no terminal";
    Err(RpcError::invalid_params(message))
}
