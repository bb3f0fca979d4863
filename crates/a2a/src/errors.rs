//! Refusals of the manager as errors of the protocol (A2A 1.0, section 9.5).

use a2a::{A2AError, error_code};
use allstop_core::TaskId;
use allstop_task::{CancelError, ExecuteError, ReadTaskError, TaskStoreError};

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
        ExecuteError::OtherContext(_) | ExecuteError::ContextOfOther(_) => {
            A2AError::invalid_params(error.to_string())
        }
        ExecuteError::Full(_) | ExecuteError::ShuttingDown => {
            A2AError::new(error_code::INTERNAL_ERROR, error.to_string())
        }
        ExecuteError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_cancel(error: &CancelError) -> A2AError {
    match error {
        CancelError::NotFound(id) => not_found(id),
        CancelError::AlreadyEnded(task) => A2AError::task_not_cancelable(task.id.as_str()),
        CancelError::Refused(_) | CancelError::ShuttingDown | CancelError::NotYet { .. } => {
            A2AError::new(error_code::INTERNAL_ERROR, error.to_string())
        }
        CancelError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_read(error: &ReadTaskError) -> A2AError {
    match error {
        ReadTaskError::NotFound(id) => not_found(id),
        ReadTaskError::Store(error) => of_store(error),
    }
}

/// The client learns that the store failed, and not where it lies.
pub(crate) fn of_store(error: &TaskStoreError) -> A2AError {
    tracing::error!(%error, "the store of the tasks");
    A2AError::internal("the store failed; try again later")
}
