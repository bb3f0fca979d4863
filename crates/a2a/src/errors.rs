//! Conversion of errors of the task manager to errors of the protocol (A2A 1.0, section 9.5).

use std::collections::HashMap;

use a2a::errordetails::{PROTOCOL_DOMAIN, TypedDetail};
use a2a::{A2AError, error_code};
use allstop_core::{TaskId, error_chain};
use allstop_log::LogErrorKind;
use allstop_task::{CancelError, ExecuteError, ReadTaskError, TaskStoreError};

use crate::overload::{CONDITION, Overload};

const UNREACHABLE: &str = "the task store cannot be reached now";

pub(crate) fn not_found(id: &TaskId) -> A2AError {
    A2AError::task_not_found(id.as_str())
}

pub(crate) fn of_execute(error: &ExecuteError) -> A2AError {
    match error {
        ExecuteError::NotFound(id) => not_found(id),
        ExecuteError::Ended { .. }
        | ExecuteError::ExecutionInProgress(_)
        | ExecuteError::CancellationInProgress(_) => {
            A2AError::unsupported_operation(error.to_string())
        }
        ExecuteError::InvalidContext(error) => {
            A2AError::invalid_params(format!("message.contextId: {error}"))
        }
        ExecuteError::OtherContext(_)
        | ExecuteError::ContextOfOther(_)
        | ExecuteError::ContextUnreadable(_) => A2AError::invalid_params(error.to_string()),
        ExecuteError::Full(_) => Overload::Full.error(error.to_string()),
        ExecuteError::ShuttingDown => Overload::Unavailable.error(error.to_string()),
        ExecuteError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_cancel(error: &CancelError) -> A2AError {
    match error {
        CancelError::NotFound(id) => not_found(id),
        CancelError::AlreadyEnded(task) => A2AError::task_not_cancelable(task.id.as_str()),
        CancelError::ShuttingDown => Overload::Unavailable.error(error.to_string()),
        CancelError::Refused(_) | CancelError::NotYet { .. } => {
            A2AError::new(error_code::INTERNAL_ERROR, error.to_string())
        }
        CancelError::Store(error) if error.is_unreadable() => of_store(error),
        CancelError::Store(error) => {
            let text = logged(error);
            Overload::Unavailable.error(format!(
                "{text}; it is unknown whether the stop was recorded: try again later"
            ))
        }
    }
}

/// Converts the error of a preview of a stop. The preview records nothing, so the error mentions no recorded stop.
pub(crate) fn of_preview(error: &CancelError) -> A2AError {
    match error {
        CancelError::Store(error) => of_store(error),
        error => of_cancel(error),
    }
}

pub(crate) fn of_read(error: &ReadTaskError) -> A2AError {
    match error {
        ReadTaskError::NotFound(id) => not_found(id),
        ReadTaskError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_store(error: &TaskStoreError) -> A2AError {
    let text = logged(error);
    match unreadable(error) {
        Some(reason) => A2AError::internal(reason),
        None => Overload::Unavailable.error(format!("{text}; try again later")),
    }
}

/// Returns the reason why this process can never read the task, and the remedy; `None` for failures of the store. A newer version of
/// Allstop may have written the task, or its records are damaged.
pub(crate) fn unreadable(error: &TaskStoreError) -> Option<String> {
    if !error.is_unreadable() {
        return None;
    }
    Some(match error {
        TaskStoreError::Illegal { .. } => {
            format!("{}: restore the store from a backup", error_chain(error))
        }
        // The error also names the location of the store.
        TaskStoreError::Log(error) => match error.kind() {
            kind @ LogErrorKind::DamagedStream => {
                format!("{kind}: restore the store from a backup")
            }
            kind => kind.to_string(),
        },
        _ => error_chain(error),
    })
}

/// Error code of JSON-RPC for a stream whose client lost its access. The specification has no code for it.
pub(crate) const REVOKED: i32 = -32_052;

/// Name of the condition, as in `google.rpc.Code`.
pub(crate) const REVOKED_WORD: &str = "UNAUTHENTICATED";

/// The last event of a stream whose client lost its access.
pub(crate) fn revoked() -> A2AError {
    let metadata = HashMap::from([(CONDITION.to_owned(), REVOKED_WORD.to_owned())]);
    let info = TypedDetail::error_info(REVOKED_WORD, PROTOCOL_DOMAIN, Some(metadata));
    let text = "the token of this stream was revoked or has expired: authenticate again, and subscribe again";
    A2AError::new(REVOKED, text).with_details(vec![info])
}

pub(crate) fn invalid(error: &impl std::fmt::Display) -> A2AError {
    A2AError::invalid_params(format!("invalid params: {error}"))
}

/// Logs a failure of the store. The returned text for the client names the kind of the failure, but not the location of
/// the store.
fn logged(error: &TaskStoreError) -> &'static str {
    tracing::error!(error = %error_chain(error), "the store of the tasks");
    match error {
        TaskStoreError::NoAnswer | TaskStoreError::Indeterminate => UNREACHABLE,
        TaskStoreError::Log(error) if error.kind() == LogErrorKind::Unreachable => UNREACHABLE,
        _ => "the store failed",
    }
}
