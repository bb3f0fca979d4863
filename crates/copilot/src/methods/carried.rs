//! `llmInference.*`: requests to models through a client.

use allstop_jsonrpc::RpcError;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, read, ready};
use crate::connection::{ResponseChunkParams, ResponseStartParams};

/// Makes the client the carrier of the requests of the sessions that it opens from now on.
pub(super) fn set_provider(
    cx: &MethodCx<'_>,
    _params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    cx.client.set_carries_requests();
    ready(json!({ "success": true }))
}

pub(super) fn start(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ResponseStartParams = read(params)?;
    ready(json!({ "accepted": cx.client.carried.start(params) }))
}

pub(super) fn chunk(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ResponseChunkParams = read(params)?;
    ready(json!({ "accepted": cx.client.carried.chunk(params) }))
}
