//! A task, computed from its records one after the other (a fold).
//!
//! Invariants:
//! 1. The first record, and only the first record, creates the task.
//! 2. Only late receipts (of lost executions) may follow a terminal record. A late receipt does not change the state.
//!    An event after a terminal record is illegal.
//! 3. Events belong to an execution. Events are illegal between the end of one execution and the start of the next.
//! 4. The number of an execution (its epoch) is the number of the previous execution plus one.

use std::sync::Arc;

use allstop_core::{Cause, ContextId, Receipt, TaskId, Timestamp, TraceContext, WorkerId};

use super::artifact::{Artifact, ArtifactUpdate};
use super::lost_execution::LostExecution;
use super::message::{JsonMap, TaskMessage};
use super::record::{TaskEnding, TaskRecord};
use super::status::{TaskState, TaskStatus};

/// A task, computed from its records.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Id of the task.
    pub id: TaskId,
    /// Context of the task: the conversation to which the task belongs.
    pub context_id: ContextId,
    /// Principal that owns the task.
    pub owner: Arc<str>,
    /// Present state.
    pub status: TaskStatus,
    /// Artifacts, in the order of their first update.
    pub artifacts: Vec<Arc<Artifact>>,
    /// Messages from the client, and messages of earlier states.
    pub history: Vec<Arc<TaskMessage>>,
    /// Additional fields from the request.
    pub metadata: JsonMap,
    /// Additional fields from the executor's last update of the state.
    pub status_metadata: JsonMap,
    /// Number of records that changed the part of the task that clients see.
    pub generation: u64,
    /// Number of the last execution; 0 before the first.
    pub epoch: u64,
    /// True from the start of an execution until the record that ends it.
    pub is_executing: bool,
    /// True if a message was accepted or the task was handed over, and the next execution has not started yet.
    pub awaits_execution: bool,
    /// W3C trace context of the last request, for the executions that answer it.
    pub trace: Option<TraceContext>,
    /// Worker of the last execution, in a cluster.
    pub worker: Option<WorkerId>,
    /// Number of consecutive take-overs. In a take-over, another process starts an execution although the log does not
    /// contain the end of the previous execution. The process of the previous execution has ended or has lost its
    /// lease.
    pub take_overs: u32,
    /// Receipt of the worker that has handed the task over. `None` if no worker has, or after another worker has started
    /// its execution.
    pub handed_over: Option<Arc<Receipt>>,
    /// Executions that other workers have taken over, or that the cluster has given up, oldest first.
    pub lost: Vec<LostExecution>,
    /// Cause of the first stop request, unless the stop was refused.
    pub stop_requested: Option<Cause>,
    /// The answer, if the executor answered with a message. Clients then do not see the task.
    pub reply: Option<Arc<TaskMessage>>,
    /// Reason for the end, if the executor did not choose the end.
    pub ending: TaskEnding,
    /// Time of the first record.
    pub created_at: Timestamp,
    /// Time of the last record.
    pub updated_at: Timestamp,
}

/// Error: a record is not allowed after the records before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IllegalTaskRecord {
    /// The stream does not begin with `task_created`.
    #[error("the first record does not create the task")]
    NotCreated,
    /// A second record creates the task.
    #[error("the task exists already")]
    CreatedTwice,
    /// A record follows the end of the task.
    #[error("the task has ended ({0})")]
    AfterEnd(TaskState),
    /// An event or an end comes while no execution runs.
    #[error("no execution of the task runs")]
    NotExecuting,
    /// A message comes during an execution.
    #[error("execution {0} of the task runs")]
    Executing(u64),
    /// A message follows a stop request.
    #[error("the task is being stopped")]
    Stopping,
    /// A refusal comes without a matching stop request, or during an execution.
    #[error("no stop can be refused there")]
    NothingToRefuse,
    /// The number of an execution is not the number of the previous execution plus one, or a record names another
    /// execution than the last.
    #[error("a record of execution {actual} follows execution {last}")]
    WrongEpoch {
        /// Number of the last execution.
        last: u64,
        /// Number in the record.
        actual: u64,
    },
    /// A late receipt is not expected: the execution is not lost, another worker ran the execution, or the execution
    /// already has a receipt.
    #[error("no receipt of execution {0} is awaited from this worker")]
    NoReceiptAwaited(u64),
    /// The state does not match the record. The end of a task must have a terminal state, and no other record may have
    /// a terminal state.
    #[error("the record does not suit the state {0}")]
    WrongState(TaskState),
}

impl Task {
    /// Applies the next record to a task. Before the first record, the task is `None`.
    ///
    /// # Errors
    /// If the record is not allowed after the records before it. The task then does not change.
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
            handed_over: None,
            lost: Vec::new(),
            stop_requested: None,
            reply: None,
            ending: TaskEnding::default(),
            created_at: *at,
            updated_at: *at,
        })
    }

    /// True if the task has ended. Only late receipts can follow.
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
            TaskRecord::HandedOver { epoch, .. } if *epoch != self.epoch => {
                let (last, actual) = (self.epoch, *epoch);
                Err(IllegalTaskRecord::WrongEpoch { last, actual })
            }
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
                // The message answers the executor's question, so the task no longer waits for its client.
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
                self.handed_over = None;
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
            TaskRecord::HandedOver { receipt, .. } => {
                self.handed_over = Some(Arc::clone(receipt));
                self.is_executing = false;
                self.awaits_execution = true;
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
