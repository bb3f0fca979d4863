//! Events that an executor writes. The executor is the code that does the work of a task.

use std::sync::Arc;

use allstop_core::Receipt;

use super::artifact::{Artifact, ArtifactUpdate};
use super::message::{JsonMap, TaskMessage};
use super::status::TaskState;

/// Event of an execution. Events are stored in the order in which the executor writes them.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEvent {
    /// The task has a new state or a new message about its state.
    Status(StatusUpdate),
    /// An artifact is new or has more parts.
    Artifact(ArtifactUpdate),
    /// The answer is a message instead of a task, so clients have no task to follow. This event ends the execution.
    Reply(Arc<TaskMessage>),
    /// Another system has stopped the work, without a stop of the task. This event ends the execution.
    Stopped(StoppedWork),
}

/// Work of a task that another system has stopped. The task stores the receipt of this stop. The cause in the receipt
/// determines the final state of the task.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppedWork {
    /// Receipt of the stop.
    pub receipt: Arc<Receipt>,
    /// Message about the end of the task.
    pub message: Option<Arc<TaskMessage>>,
    /// Error text for people.
    pub error: Option<Arc<str>>,
}

/// New state of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusUpdate {
    /// The state.
    pub state: TaskState,
    /// Message about the state.
    pub message: Option<Arc<TaskMessage>>,
    /// Additional fields from the executor.
    pub metadata: JsonMap,
}

impl TaskEvent {
    /// Creates a change of the state without a message.
    pub fn state(state: TaskState) -> Self {
        Self::Status(StatusUpdate {
            state,
            message: None,
            metadata: JsonMap::new(),
        })
    }

    /// Creates a change of the state with a message.
    pub fn status(state: TaskState, message: TaskMessage) -> Self {
        Self::Status(StatusUpdate {
            state,
            message: Some(Arc::new(message)),
            metadata: JsonMap::new(),
        })
    }

    /// Creates an event with a complete artifact.
    pub fn artifact(artifact: Artifact) -> Self {
        Self::Artifact(artifact.into())
    }

    /// True if this is the last event of its execution.
    pub fn ends_execution(&self) -> bool {
        match self {
            Self::Status(update) => update.state.ends_execution(),
            Self::Artifact(_) => false,
            Self::Reply(_) | Self::Stopped(_) => true,
        }
    }
}
