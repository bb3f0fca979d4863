//! A task: the fold of its records.
//!
//! Invariants:
//! 1. The first record creates the task; no other record does.
//! 2. Nothing follows a terminal record but late receipts, which do not change it: a late event is illegal.
//! 3. Events belong to an execution: they are illegal between the end of one and the start of the next.
//! 4. Epochs of executions grow by one.

use std::sync::Arc;

use allstop_core::{Cause, ContextId, TaskId, Timestamp, WorkerId};

use super::artifact::{Artifact, ArtifactUpdate};
use super::lost_execution::LostExecution;
use super::message::{JsonMap, TaskMessage};
use super::record::{TaskEnding, TaskRecord};
use super::status::{TaskState, TaskStatus};

/// A task as its records tell it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Id of the task.
    pub id: TaskId,
    /// Context of the task.
    pub context_id: ContextId,
    /// Principal that the task belongs to.
    pub owner: Arc<str>,
    /// Present state.
    pub status: TaskStatus,
    /// Artifacts, in the order of their first update.
    pub artifacts: Vec<Arc<Artifact>>,
    /// Messages of the client, and messages of earlier states.
    pub history: Vec<Arc<TaskMessage>>,
    /// Fields of the request.
    pub metadata: JsonMap,
    /// Fields of the executor's last update of the state.
    pub status_metadata: JsonMap,
    /// Number of records that changed the task.
    pub generation: u64,
    /// Number of the last execution; 0 before the first.
    pub epoch: u64,
    /// True from the start of an execution to the record that ends it.
    pub is_executing: bool,
    /// True if a message was accepted and its execution has not started.
    pub awaits_execution: bool,
    /// W3C trace context (`traceparent`) of the last request, for the executions that answer it.
    pub trace: Option<Arc<str>>,
    /// Worker of the last execution, in a cluster.
    pub worker: Option<WorkerId>,
    /// Executions in a row that another one took over, because their process had ended.
    pub take_overs: u32,
    /// Executions that their workers have lost, the oldest first.
    pub lost: Vec<LostExecution>,
    /// Cause of the first stop that was requested and that the end of the task has not answered.
    pub stop_requested: Option<Cause>,
    /// The answer, if the executor answered with a message: then clients see no task.
    pub reply: Option<Arc<TaskMessage>>,
    /// Reason of the end.
    pub ending: TaskEnding,
    /// Time of the first record.
    pub created_at: Timestamp,
    /// Time of the last record.
    pub updated_at: Timestamp,
}

/// Record that is not allowed after the records before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalTaskRecord {
    /// The stream does not begin with `task_created`.
    #[error("the first record does not create the task")]
    NotCreated,
    /// A second creation.
    #[error("the task exists already")]
    CreatedTwice,
    /// A record after the end.
    #[error("the task has ended ({0})")]
    AfterEnd(TaskState),
    /// An event or an end outside of an execution.
    #[error("no execution of the task runs")]
    NotExecuting,
    /// A message during an execution.
    #[error("execution {0} of the task runs")]
    Executing(u64),
    /// A message after the request for a stop.
    #[error("the task is being stopped")]
    Stopping,
    /// The refusal of a stop that was not requested, or of one of an execution.
    #[error("no stop can be refused there")]
    NothingToRefuse,
    /// An execution whose number does not follow.
    #[error("execution {actual} follows execution {last}")]
    WrongEpoch {
        /// Number of the last execution.
        last: u64,
        /// Number in the record.
        actual: u64,
    },
    /// A receipt of an execution that was not lost, of another worker, or a second one.
    #[error("no receipt of execution {0} is awaited from this worker")]
    NoReceiptAwaited(u64),
    /// A terminal state in a record that is not the last, or the other way round.
    #[error("the record does not suit the state {0}")]
    WrongState(TaskState),
}

impl Task {
    /// Applies the next record to a task; `None` is the task before its first record.
    ///
    /// # Errors
    /// If the record is not allowed there; then the task is unchanged.
    pub fn apply(
        task: &mut Option<Arc<Self>>,
        record: &TaskRecord,
    ) -> Result<(), IllegalTaskRecord> {
        match task {
            None => *task = Some(Arc::new(Self::created(record)?)),
            Some(task) => {
                task.check(record)?;
                Arc::make_mut(task).change(record);
            }
        }
        Ok(())
    }

    fn created(record: &TaskRecord) -> Result<Self, IllegalTaskRecord> {
        let TaskRecord::TaskCreated {
            task_id,
            context_id,
            owner,
            message,
            metadata,
            trace,
            at,
        } = record
        else {
            return Err(IllegalTaskRecord::NotCreated);
        };
        Ok(Self {
            id: task_id.clone(),
            context_id: context_id.clone(),
            owner: Arc::clone(owner),
            status: TaskStatus {
                state: TaskState::Submitted,
                message: None,
                at: *at,
            },
            artifacts: Vec::new(),
            history: vec![Arc::clone(message)],
            metadata: metadata.clone(),
            status_metadata: JsonMap::new(),
            generation: 1,
            epoch: 0,
            is_executing: false,
            awaits_execution: true,
            trace: trace.clone(),
            worker: None,
            take_overs: 0,
            lost: Vec::new(),
            stop_requested: None,
            reply: None,
            ending: TaskEnding::default(),
            created_at: *at,
            updated_at: *at,
        })
    }

    /// True if nothing can follow, but late receipts.
    pub fn has_ended(&self) -> bool {
        self.status.state.is_terminal() || self.reply.is_some()
    }

    fn check(&self, record: &TaskRecord) -> Result<(), IllegalTaskRecord> {
        if let TaskRecord::LateReceipt { epoch, worker, .. } = record {
            let is_awaited = self.awaits_receipt(*epoch, worker);
            let refusal = IllegalTaskRecord::NoReceiptAwaited(*epoch);
            return is_awaited.then_some(()).ok_or(refusal);
        }
        if self.has_ended() {
            return Err(IllegalTaskRecord::AfterEnd(self.status.state));
        }
        match record {
            TaskRecord::TaskCreated { .. } => Err(IllegalTaskRecord::CreatedTwice),
            TaskRecord::MessageReceived { .. } if self.is_executing => {
                Err(IllegalTaskRecord::Executing(self.epoch))
            }
            TaskRecord::MessageReceived { .. } if self.stop_requested.is_some() => {
                Err(IllegalTaskRecord::Stopping)
            }
            TaskRecord::StopRefused { .. }
                if self.is_executing || self.stop_requested.is_none() =>
            {
                Err(IllegalTaskRecord::NothingToRefuse)
            }
            TaskRecord::ExecutionStarted { epoch, .. } if *epoch != self.epoch + 1 => {
                Err(IllegalTaskRecord::WrongEpoch {
                    last: self.epoch,
                    actual: *epoch,
                })
            }
            TaskRecord::MessageReceived { .. }
            | TaskRecord::ExecutionStarted { .. }
            | TaskRecord::StopRequested { .. }
            | TaskRecord::StopRefused { .. } => Ok(()),
            _ if !self.is_executing => Err(IllegalTaskRecord::NotExecuting),
            TaskRecord::StatusChanged { status, .. } if status.state.is_terminal() => {
                Err(IllegalTaskRecord::WrongState(status.state))
            }
            TaskRecord::TaskEnded { status, .. } if !status.state.is_terminal() => {
                Err(IllegalTaskRecord::WrongState(status.state))
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, record: &TaskRecord) {
        self.updated_at = record.at();
        self.generation += u64::from(record.changes_task());
        match record {
            TaskRecord::TaskCreated { .. } => {}
            TaskRecord::MessageReceived { message, trace, .. } => {
                self.trace.clone_from(trace);
                self.archive_status_message();
                self.history.push(Arc::clone(message));
                // A question has its answer: the task no longer waits for its client.
                self.status = TaskStatus {
                    state: TaskState::Submitted,
                    message: None,
                    at: record.at(),
                };
                self.awaits_execution = true;
            }
            TaskRecord::ExecutionStarted { epoch, worker, .. } => {
                self.take_overs = if self.is_executing {
                    self.lose_execution();
                    self.take_overs + 1
                } else {
                    0
                };
                self.epoch = *epoch;
                self.worker.clone_from(worker);
                self.is_executing = true;
                self.awaits_execution = false;
            }
            TaskRecord::StopRequested { cause, .. } => {
                self.stop_requested.get_or_insert_with(|| cause.clone());
            }
            TaskRecord::StopRefused { .. } => self.stop_requested = None,
            TaskRecord::StatusChanged { status, metadata } => self.set_status(status, metadata),
            TaskRecord::ArtifactUpdated { update, .. } => self.update_artifact(update),
            TaskRecord::Replied { message, .. } => self.reply = Some(Arc::clone(message)),
            TaskRecord::TaskEnded {
                status,
                metadata,
                ending,
            } => {
                self.set_status(status, metadata);
                self.ending = ending.clone();
                if ending.lost_execution == Some(self.epoch) {
                    self.lose_execution();
                }
                self.complete_ending();
            }
            TaskRecord::LateReceipt { epoch, receipt, .. } => {
                self.add_late_receipt(*epoch, receipt);
            }
        }
        self.is_executing &= !record.ends_execution();
    }

    fn set_status(&mut self, status: &TaskStatus, metadata: &JsonMap) {
        self.archive_status_message();
        self.status = status.clone();
        self.status_metadata.clone_from(metadata);
    }

    fn archive_status_message(&mut self) {
        self.history.extend(self.status.message.take());
    }

    fn update_artifact(&mut self, update: &ArtifactUpdate) {
        let new = &update.artifact;
        match self.artifacts.iter_mut().find(|known| known.id == new.id) {
            Some(known) if update.append => {
                Arc::make_mut(known).parts.extend_from_slice(&new.parts);
            }
            Some(known) => *known = Arc::clone(new),
            None => self.artifacts.push(Arc::clone(new)),
        }
    }
}
