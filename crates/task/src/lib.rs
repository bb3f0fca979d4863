//! Tasks: addressable, durable work that can be stopped at any moment.
//!
//! A [`TaskManager`] owns the tasks of one store. A message starts an execution of its task. The [`Executor`] works in
//! a scope and writes events. Work runs in a tree of scopes, and a stop ends all work in a scope and below. Each event
//! is stored as a record of the task's stream. The state of the task is computed from its records, one after the other
//! (a fold). Subscribers read the stream from a cursor. This crate does not depend on agents or on a protocol.
//!
//! # How an execution ends
//! Every execution has one end: an event of its executor, or a record of the manager. The manager writes the record if
//! the executor fails, panics, returns too early, writes no event for too long, exceeds its total time or is stopped.
//! The end of a stopped execution contains the receipt of the stop: the list of the work, with the result for each
//! item. The manager writes this end outside the stopped scope, and repeats the write until the store confirms it.
//!
//! # Stopping
//! [`TaskManager::cancel`] stops the scope of the execution: the stop asks the work to end, waits for a time (the
//! grace), and then uses force. The call returns the receipt, even if the executor does not cooperate. If no execution
//! of the task runs, the [`Canceler`] ends the task; without a canceler the manager ends the task immediately.

//!
//! # Replacing one part
//! | part | type | checks of an implementation |
//! | --- | --- | --- |
//! | store of the tasks | [`Log`](allstop_log::Log) | `log_conformance!` of `allstop_log` (feature `conformance`) |
//! | events for the subscribers of a cluster | [`Log::tail`](allstop_log::Log::tail) of a log that wraps another log | `log_conformance!` |
//! | work queue of a cluster | [`WakeUpQueue`], in [`ClusterOptions::wake_ups`] | [`wake_up_conformance!`](crate::wake_up_conformance!) |
//! | entries and questions of a cluster | [`ClusterLink`] | the tests of the link |
//!
//! # Example
//! A task that is cancelled while it works:
//!
//! ```
//! use std::sync::Arc;
//!
//! use allstop_core::CauseKind;
//! use allstop_log::MemoryLog;
//! use allstop_scope::{RootOptions, Scope};
//! use allstop_task::model::MessageSender;
//! use allstop_task::{
//!     ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskManager, TaskMessage, TaskOptions, TaskParts, TaskRequest,
//!     TaskState,
//! };
//! use futures::future::BoxFuture;
//!
//! struct Backup;
//!
//! impl Executor for Backup {
//!     fn execute(&self, cx: ExecutionCx) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
//!         Box::pin(async move {
//!             cx.scope.stopped_at("between two files").await;
//!             Ok(ExecutorReturn::Finished)
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scope = Scope::root("tasks", RootOptions::current());
//! let parts = Arc::new(TaskParts::of(Backup));
//! let manager = TaskManager::open(Arc::new(MemoryLog::new()), scope, parts, TaskOptions::default()).await?;
//! let message = TaskMessage::text("m1", MessageSender::User, "Back up the disk.");
//! let accepted = manager.execute(TaskRequest::new("ann", message)).await?;
//! let outcome = manager.cancel(&accepted.task_id, CauseKind::User.into()).await?;
//! assert_eq!(outcome.task.status.state, TaskState::Canceled);
//! assert!(outcome.receipt.quiet());
//! # Ok(())
//! # }
//! ```

mod cluster;
mod cut_task;
mod error;
mod event_writer;
mod execution;
mod executor;
mod feed;
mod live_subscription;
mod live_text;
mod live_text_writer;
mod manager;
pub mod model;
mod observer;
mod options;
mod retention;
mod stored_task;
mod subscription;
mod task_stream;
mod waker;

pub use cluster::wake_up_conformance;
pub use cluster::{
    AdmissionLimits, AskedQuestion, ClusterLink, ClusterOptions, DeadLetter, DeadLetterRetryError,
    HeldWakeUp, LeaseChange, LeaseHandler, LinkEntry, LinkFuture, MemoryLink, PutError,
    RenewalHandler, StopDelivery, WakeUpQueue, WorkerInfo,
};
pub use cut_task::end_of_cut_task;
pub use error::{CancelError, ExecuteError, ReadTaskError, TaskStoreError};
pub use event_writer::{EventWriter, ExecutionEnded};
pub use execution::PartReceipts;
pub use executor::{
    CancelCx, CancelParts, Canceler, Cleanup, CleanupCx, ExecutionCx, ExecutionError, Executor,
    ExecutorError, ExecutorReturn, Processor, ProcessorDecision, TaskParts, TaskPartsFactory,
};
pub use feed::TaskUpdate;
pub use live_subscription::{LiveItem, LiveSubscription};
pub use live_text::LivePiece;
pub use live_text_writer::LiveTextWriter;
pub use manager::{
    AcceptedTask, CancelOutcome, ListFilter, RunningTask, ShutdownReport, TaskManager, TaskPage,
    TaskPosition, TaskRequest, TaskSummary,
};
pub use model::{Task, TaskEvent, TaskMessage, TaskRecord, TaskState};
pub use observer::{ExecutionObserver, TaskObserver};
pub use options::{PanicHandler, TaskOptions, WhenFull};
pub use retention::{
    ContextData, NoContextData, RemovalReport, RetentionLimits, TaskAttachment, TaskRetention,
};
pub use subscription::{SubscriptionItem, TaskSubscription};
pub use waker::TaskWaker;
