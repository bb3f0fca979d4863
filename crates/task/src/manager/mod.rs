//! The manager of the tasks of one store.

mod cancel;
mod coordinator;
mod execute;
mod host;
mod list;
mod local_executions;
mod operations;
mod orphan_stop;
mod read;
mod recover;
mod remove_ended;
mod running;
mod shutdown;
mod slots;
mod table;
mod wake;

use std::fmt;
use std::sync::Arc;

use allstop_core::{TaskId, Timestamp, TraceContext, WorkerId};
use allstop_log::Log;
use allstop_scope::{NotStarted, Scope, ScopeOptions};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use crate::execution::{Acceptance, Execution, ExecutionEngine, ExecutionJob, SlotRequest};
use crate::executor::{TaskParts, TaskPartsFactory};
use crate::feed::TaskFeed;
use crate::options::TaskOptions;
use crate::task_stream::TaskStream;

pub use cancel::CancelOutcome;
pub(crate) use cancel::{end_here, outcome_of};
pub(crate) use execute::created;
pub use execute::{AcceptedTask, TaskRequest};
pub use list::{ListFilter, TaskPage, TaskPosition, TaskSummary};
pub use running::RunningTask;
pub use shutdown::ShutdownReport;

use coordinator::Coordinator;
use slots::SlotAnswer;
use table::TaskTable;

/// Manager of the tasks of one store. Clones share one manager.
///
/// The manager owns every task of its store. Each task has at most one execution at a time, and the stream of each task
/// has one writer. A client that disconnects does not stop a task.
#[derive(Clone)]
pub struct TaskManager {
    pub(crate) inner: Arc<ManagerInner>,
}

pub(crate) struct ManagerInner {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) root: Scope,
    pub(crate) factory: Arc<dyn TaskPartsFactory>,
    /// The parts of the factory, if all tasks share them.
    pub(crate) shared_parts: Option<TaskParts>,
    pub(crate) options: TaskOptions,
    table: Mutex<TaskTable>,
    is_shut_down: watch::Sender<bool>,
    pub(crate) coordinator: Coordinator,
    /// True after the manager stops accepting messages.
    is_draining: watch::Sender<bool>,
}

impl ManagerInner {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        root: Scope,
        factory: Arc<dyn TaskPartsFactory>,
        options: TaskOptions,
        table: TaskTable,
        coordinator: Coordinator,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            root,
            shared_parts: factory.shared_parts(),
            factory,
            options,
            table: Mutex::new(table),
            is_shut_down: watch::Sender::new(false),
            coordinator,
            is_draining: watch::Sender::new(false),
        })
    }

    /// Current time for records.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.now)()
    }

    /// Creates the scopes of a new execution.
    fn new_execution(
        &self,
        id: &TaskId,
        trace: Option<TraceContext>,
        worker: Option<WorkerId>,
    ) -> Result<NewExecution, NotStarted> {
        let (label, side_label) = (format!("task/{id}"), format!("task/{id}/parts"));
        Ok(NewExecution {
            execution: Arc::new(Execution::new(&self.root, &label, trace, worker)?),
            side_scope: self.root.child(side_label, ScopeOptions::default())?,
        })
    }

    /// Starts the engine of an execution that is in the table. The engine is the Tokio task that drives the execution.
    /// If a stop was requested, the execution receives the stop before the engine runs. `slot` is `None` for an
    /// execution that needs no slot.
    ///
    /// Releases the lock of the table first, for two reasons. If the runtime has ended, the new engine is dropped
    /// immediately, and the drop takes the lock to remove the execution. The drop of a position in the queue for slots
    /// also takes the lock.
    fn start_engine(
        self: &Arc<Self>,
        table: MutexGuard<'_, TaskTable>,
        new: NewExecution,
        id: &TaskId,
        feed: Arc<TaskFeed>,
        job: ExecutionJob,
        slot: Option<(SlotAnswer, &Arc<str>)>,
    ) -> Acceptance {
        drop(table);
        if let ExecutionJob::Cancel(cause) = &job {
            drop(new.execution.stop(cause.clone()));
        }
        let slot = slot.map_or(SlotRequest::NotNeeded, |(answer, owner)| {
            self.slot_request(answer, owner)
        });
        let stream = TaskStream::new(Arc::clone(&self.log), id.clone(), feed);
        let scope = new.execution.scope().clone();
        let engine =
            ExecutionEngine::new(Arc::clone(self) as _, new.execution, stream, new.side_scope);
        let (accepted_tx, accepted) = oneshot::channel();
        // The engine runs in its scope, and no caller waits for its value.
        drop(scope.spawn_engine(engine.run(job, slot, accepted_tx)));
        accepted
    }
}

/// The scopes of an execution that is not in the table yet.
struct NewExecution {
    execution: Arc<Execution>,
    side_scope: Scope,
}

impl fmt::Debug for TaskManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskManager")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}
