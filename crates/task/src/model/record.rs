//! Records of a task's stream.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::{Cause, ContextId, Receipt, TaskId, Timestamp, TraceContext, WorkerId};
use serde::{Deserialize, Serialize};

use super::artifact::ArtifactUpdate;
use super::message::{JsonMap, TaskMessage};
use super::status::TaskStatus;

/// Record of a task's stream. Applying the records in order (a fold) gives the task
/// ([`Task::apply`](super::Task::apply)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaskRecord {
    /// The task was accepted.
    TaskCreated {
        /// Id of the task.
        task_id: TaskId,
        /// Context of the task: the conversation to which the task belongs.
        context_id: ContextId,
        /// Principal that owns the task.
        owner: Arc<str>,
        /// First message.
        message: Arc<TaskMessage>,
        /// Additional fields from the request.
        #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
        metadata: JsonMap,
        /// W3C trace context of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceContext>,
        /// Time of the request.
        at: Timestamp,
    },
    /// A later message was accepted.
    MessageReceived {
        /// The message.
        message: Arc<TaskMessage>,
        /// W3C trace context of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceContext>,
        /// Time of the request.
        at: Timestamp,
    },
    /// From this record on, a process runs the task. If an execution already runs, the process of this record takes the
    /// execution over.
    ExecutionStarted {
        /// Number of the execution: 1, 2, 3 … After this record, an execution with a smaller number cannot append
        /// records.
        epoch: u64,
        /// The process.
        process: ProcessIdentity,
        /// Worker that runs the task, in a cluster. `None` if the process manages the store alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<WorkerId>,
        /// Time of the start.
        at: Timestamp,
    },
    /// A client requests a stop of the task. The process that manages the task, perhaps another process, then stops the
    /// execution and ends the task.
    StopRequested {
        /// Cause of the stop.
        cause: Cause,
        /// Time of the request.
        at: Timestamp,
    },
    /// No execution of the task ran, and the task's canceler (a part of the embedding program) refused the stop. The
    /// task returns to its state before the request.
    StopRefused {
        /// The reason for the refusal, for people.
        reason: Arc<str>,
        /// Time of the refusal.
        at: Timestamp,
    },
    /// The state has changed. The task continues or waits for input.
    StatusChanged {
        /// The new state.
        status: TaskStatus,
        /// Additional fields from the executor.
        #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
        metadata: JsonMap,
    },
    /// An artifact is new or has more parts.
    ArtifactUpdated {
        /// The update.
        update: ArtifactUpdate,
        /// Time of the update.
        at: Timestamp,
    },
    /// The executor has answered with a message. This is the last record.
    Replied {
        /// The answer.
        message: Arc<TaskMessage>,
        /// Time of the answer.
        at: Timestamp,
    },
    /// The task has ended. Only late receipts can follow.
    TaskEnded {
        /// The terminal state.
        status: TaskStatus,
        /// Additional fields from the executor.
        #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
        metadata: JsonMap,
        /// The reason for the end, if the executor did not end the task by itself.
        #[serde(default)]
        ending: TaskEnding,
    },
    /// The worker of the execution shuts down and has stopped its work. The next worker continues the task.
    HandedOver {
        /// Number of the execution.
        epoch: u64,
        /// Receipt of the stop. All work of the execution has ended.
        receipt: Arc<Receipt>,
        /// Time of the hand-over.
        at: Timestamp,
    },
    /// Receipt of the stop that ended a [`LostExecution`](super::LostExecution). The worker of the execution writes the
    /// receipt as soon as the worker can write again, perhaps after the end of the task. This record does not change
    /// the state of the task. If the end of the task names this execution, the record adds the receipt to the end.
    LateReceipt {
        /// Number of the execution.
        epoch: u64,
        /// Worker of the execution.
        worker: WorkerId,
        /// Receipt of the stop with which the worker ended the execution.
        receipt: Arc<Receipt>,
        /// Time of the record, on the clock of that worker.
        at: Timestamp,
    },
}

/// Reason for an end that the executor did not choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskEnding {
    /// Cause of the stop or failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Error of the executor, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// Receipt of the stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Arc<Receipt>>,
    /// Number of the execution whose loss ended the task. The late receipt of that execution is added to this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_execution: Option<u64>,
}

impl TaskRecord {
    /// True if the record changes the part of the task that clients see. Such a record increments the generation of the
    /// task.
    pub fn changes_task(&self) -> bool {
        !matches!(
            self,
            Self::ExecutionStarted { .. }
                | Self::StopRequested { .. }
                | Self::StopRefused { .. }
                | Self::HandedOver { .. }
        )
    }

    /// True if any process may write this record, even while another process runs the task.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!(self, Self::StopRequested { .. } | Self::LateReceipt { .. })
    }

    /// Time of the record.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::TaskCreated { at, .. }
            | Self::MessageReceived { at, .. }
            | Self::ExecutionStarted { at, .. }
            | Self::StopRequested { at, .. }
            | Self::StopRefused { at, .. }
            | Self::ArtifactUpdated { at, .. }
            | Self::Replied { at, .. }
            | Self::HandedOver { at, .. }
            | Self::LateReceipt { at, .. } => *at,
            Self::StatusChanged { status, .. } | Self::TaskEnded { status, .. } => status.at,
        }
    }

    /// True if this is the last record of its execution, and no other worker continues it.
    pub fn ends_execution(&self) -> bool {
        match self {
            Self::Replied { .. } | Self::TaskEnded { .. } => true,
            Self::StatusChanged { status, .. } => status.state.ends_execution(),
            _ => false,
        }
    }
}
