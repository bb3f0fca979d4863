//! `secrets.addFilterValues`: secret values that the server removes from texts.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, read, ready};

#[derive(Deserialize)]
struct FilterParams {
    values: Vec<String>,
}

pub(super) fn add(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: FilterParams = read(params)?;
    let added = cx.server.secrets().add(params.values);
    added.map_err(|error| RpcError::invalid_params(error.to_string()))?;
    ready(json!({ "ok": true }))
}
