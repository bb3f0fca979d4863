//! Refusals and failures of the manager's operations.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::{ContextId, TaskId};
use allstop_log::{LogError, LogErrorKind, Version};

use crate::cluster::stop_delivery::StopDelivery;
use crate::executor::ExecutorError;
use crate::model::{IllegalTaskRecord, Task, TaskRecordError, TaskState};

/// Reason why a message starts no execution.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExecuteError {
    /// An execution of the task runs.
    #[error("an execution of task {0} runs")]
    ExecutionInProgress(TaskId),
    /// The task is being stopped.
    #[error("task {0} is being stopped")]
    CancellationInProgress(TaskId),
    /// The task does not exist.
    #[error("task {0} does not exist")]
    NotFound(TaskId),
    /// The task has ended.
    #[error("task {id} has ended ({state}); start a new task")]
    Ended {
        /// The task.
        id: TaskId,
        /// Its terminal state.
        state: TaskState,
    },
    /// The task belongs to another context than the message.
    #[error("task {0} belongs to another context")]
    OtherContext(TaskId),
    /// The context of a new task belongs to another owner.
    #[error("context {0} belongs to another owner; choose another id")]
    ContextOfOther(ContextId),
    /// The context may belong to another owner: the first record of a task is unreadable, so the owner of its context is
    /// unknown.
    #[error(
        "context {0} may belong to a task that cannot be read; send the message without a context"
    )]
    ContextUnreadable(ContextId),
    /// The executor does not permit this id of a context. The error names the permitted ids.
    #[error(transparent)]
    InvalidContext(ExecutorError),
    /// A limit of executions is reached.
    #[error("{0}; try again later")]
    Full(&'static str),
    /// The manager is shutting down.
    #[error("the task manager is shutting down")]
    ShuttingDown,
    /// The store failed. No message was accepted.
    #[error(transparent)]
    Store(#[from] TaskStoreError),
}

/// Reason why a stop of a task returns no receipt (list of the stopped work).
#[derive(Debug, Clone, thiserror::Error)]
pub enum CancelError {
    /// The task does not exist.
    #[error("task {0} does not exist")]
    NotFound(TaskId),
    /// The task has ended without a stop.
    #[error("task {} has ended ({})", .0.id, .0.status.state)]
    AlreadyEnded(Arc<Task>),
    /// No execution of the task ran, and the canceler (a part of the embedding program) refused the stop or failed. The
    /// task is unchanged.
    #[error("the canceler refused")]
    Refused(#[source] ExecutorError),
    /// The manager is shutting down, and the task has no execution here.
    #[error("the task manager is shutting down")]
    ShuttingDown,
    /// The stop request is durable, but the receipt of the stop does not exist yet: the worker of the task did not
    /// answer in time, or the task has no worker.
    #[error("the stop of task {} is requested; its worker has not confirmed it ({})", .task.id, .delivery.as_str())]
    NotYet {
        /// The current task.
        task: Arc<Task>,
        /// Progress of the stop.
        delivery: StopDelivery,
    },
    /// The work was stopped, as described by the receipt, but the store did not confirm the end of the task.
    #[error(transparent)]
    Store(#[from] TaskStoreError),
}

/// Reason why a task cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadTaskError {
    /// The task does not exist.
    #[error("task {0} does not exist")]
    NotFound(TaskId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] TaskStoreError),
}

/// Failure of the store of the tasks.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TaskStoreError {
    /// The store failed. Nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store did not answer. The write may have been stored.
    #[error("the store has not confirmed the write")]
    Indeterminate,
    /// The store did not answer a read in time.
    #[error("the store does not answer")]
    NoAnswer,
    /// Another process has written to the task.
    #[error("another process has written to the task (version {0})")]
    Fenced(Version),
    /// This worker has lost its lease, so it may no longer run tasks. Another worker will end the task.
    #[error("this worker has lost its lease; another worker ends the task")]
    LeaseLost,
    /// Another process manages the tasks of this store.
    #[error("another process manages the tasks of this store{}", .0.as_ref().map(|owner| format!(" (pid {})", owner.pid)).unwrap_or_default())]
    InUse(Option<ProcessIdentity>),
    /// A record cannot be read.
    #[error("record {version} of task {id} cannot be read")]
    Unreadable {
        /// The task.
        id: TaskId,
        /// Number of the record.
        version: Version,
        /// The reason.
        #[source]
        source: Arc<TaskRecordError>,
    },
    /// A record is not allowed at this position of the stream.
    #[error("record {version} of task {id} is not allowed there")]
    Illegal {
        /// The task.
        id: TaskId,
        /// Number of the record.
        version: Version,
        /// The reason.
        #[source]
        source: IllegalTaskRecord,
    },
}

impl TaskStoreError {
    /// True if the store works, but this process can never read the task: a newer version of Allstop wrote a record, or a
    /// record is damaged.
    pub fn is_unreadable(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Illegal { .. } => true,
            Self::Log(error) => matches!(
                error.kind(),
                LogErrorKind::Corrupt | LogErrorKind::DamagedStream | LogErrorKind::NewerVersion
            ),
            _ => false,
        }
    }
}

impl From<ReadTaskError> for ExecuteError {
    fn from(error: ReadTaskError) -> Self {
        match error {
            ReadTaskError::NotFound(id) => Self::NotFound(id),
            ReadTaskError::Store(error) => Self::Store(error),
        }
    }
}

impl From<ReadTaskError> for CancelError {
    fn from(error: ReadTaskError) -> Self {
        match error {
            ReadTaskError::NotFound(id) => Self::NotFound(id),
            ReadTaskError::Store(error) => Self::Store(error),
        }
    }
}

impl From<LogError> for CancelError {
    fn from(error: LogError) -> Self {
        Self::Store(error.into())
    }
}
