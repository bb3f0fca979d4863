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

/// Refuses an empty text in a field that must name something.
pub(crate) fn check_text(field: &str, text: &str) -> Result<(), RpcError> {
    if !text.trim().is_empty() {
        return Ok(());
    }
    Err(RpcError::invalid_params(format!(
        "`{field}` is empty: use a name with at least one letter or digit"
    )))
}

/// Like [`check_text`], but for a field that may be absent.
pub(crate) fn check_optional_text(field: &str, text: Option<&str>) -> Result<(), RpcError> {
    if text.is_none_or(|text| !text.trim().is_empty()) {
        return Ok(());
    }
    Err(RpcError::invalid_params(format!(
        "`{field}` is empty: use a name, or omit the field"
    )))
}
