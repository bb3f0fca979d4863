//! `sessionFs.setProvider`: a program that stores the files of its sessions.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, read, ready};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileProviderParams {
    session_state_path: String,
    conventions: PathConventions,
}

/// Conventions of the paths of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PathConventions {
    Posix,
    Windows,
}

pub(super) fn set_provider(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: FileProviderParams = read(params)?;
    if params.conventions == PathConventions::Windows {
        let message = "`conventions`: only paths with `/` are offered";
        return Err(RpcError::invalid_params(message));
    }
    if !params.session_state_path.starts_with('/') {
        let message = "`sessionStatePath` is not an absolute path";
        return Err(RpcError::invalid_params(message));
    }
    if cx.server.has_open_sessions() {
        let message = "sessions are already open: set the provider before the first session";
        return Err(RpcError::invalid_params(message));
    }
    if !cx.client.set_files_folder(params.session_state_path.into()) {
        return Err(RpcError::invalid_params("the provider is already set"));
    }
    ready(json!({ "success": true }))
}
