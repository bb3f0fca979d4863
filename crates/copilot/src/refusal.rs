//! Errors of the runtime in the form of the protocol.

use allstop_jsonrpc::RpcError;
use allstop_runtime::{StartError, StartErrorKind};

/// Converts an error of the runtime.
pub(crate) fn refusal(error: &StartError) -> RpcError {
    // The hints of the other errors are also useful to a program.
    let hint = match error.kind {
        StartErrorKind::SessionExists => Some("`session.resume` continues it"),
        StartErrorKind::UnknownSession => Some("`session.list` names all sessions"),
        _ => error.hint.as_deref(),
    };
    let message = match hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    if error.kind.is_usage() {
        RpcError::invalid_params(message)
    } else {
        RpcError::internal_error(message)
    }
}
