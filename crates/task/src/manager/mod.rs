//! The manager of the tasks of one store.

mod cancel;
mod execute;
mod here;
mod left_work;
mod list;
mod read;
mod recover;
mod shutdown;
mod slot_guard;
mod slots;
mod table;
mod wake;

use std::fmt;
use std::sync::Arc;

use allstop_core::{MessageId, TaskId, WorkerId};
use allstop_log::{Log, StreamLock};
use allstop_scope::{NotStarted, Scope, ScopeOptions};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::cluster::ClusterNode;
use crate::execution::{Acceptance, Execution, ExecutionEngine, ExecutionJob};
use crate::executor::{TaskParts, TaskPartsFactory};
use crate::feed::TaskFeed;
use crate::model::TaskRecord;
use crate::options::TaskOptions;
use crate::task_stream::TaskStream;

pub use cancel::CancelOutcome;
pub(crate) use execute::created;
pub use execute::{AcceptedTask, TaskRequest};
pub use list::{ListFilter, TaskPage, TaskPosition, TaskSummary};
pub use shutdown::ShutdownReport;

use table::TaskTable;

pub(crate) use slot_guard::{SlotGuard, SlotRequest};

/// Manager of the tasks of one store. Clones are the same manager.
///
/// It owns every task of its store: one execution at a time per task, one writer per stream. Clients that go away
/// stop nothing.
#[derive(Clone)]
pub struct TaskManager {
    pub(crate) inner: Arc<ManagerInner>,
}

pub(crate) struct ManagerInner {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) root: Scope,
    pub(crate) factory: Arc<dyn TaskPartsFactory>,
    /// The factory's, if it makes the same for every task.
    pub(crate) shared_parts: Option<TaskParts>,
    pub(crate) options: TaskOptions,
    table: Mutex<TaskTable>,
    is_shut_down: watch::Sender<bool>,
    /// Keeps other processes from managing the same tasks; `None` in a cluster.
    _lock: Option<StreamLock>,
    /// `None`: this process manages the tasks alone.
    pub(crate) cluster: Option<Arc<ClusterNode>>,
    /// True once no message is accepted any more.
    is_draining: watch::Sender<bool>,
}

impl ManagerInner {
    /// Notes the task behind a confirmed append.
    pub(crate) fn note(&self, stream: &TaskStream) {
        match (stream.task(), &self.cluster) {
            (Some(task), None) => self.table.lock().note(task, stream.feed()),
            (Some(task), Some(node)) => node.note(stream.version(), task),
            (None, _) => {}
        }
    }

    /// Removes an execution of which nothing runs any more.
    pub(crate) fn release(&self, stream: &TaskStream) {
        self.note(stream);
        self.table.lock().release(stream.id());
    }

    /// Forgets a message that was not accepted: sent again, it is new.
    pub(crate) fn forget_message(&self, owner: &Arc<str>, message: &MessageId, of: &TaskId) {
        self.table.lock().forget_message(owner, message, of);
    }

    /// Resolves when a shutdown has ended: nobody waits for a write any more.
    pub(crate) async fn shut_down(&self) {
        let mut is_shut_down = self.is_shut_down.subscribe();
        // The sender is in this manager, so the wait ends with the value.
        let _set = is_shut_down.wait_for(|is_shut_down| *is_shut_down).await;
    }

    /// True unless the worker of the execution has lost its lease.
    pub(crate) fn may_start(&self, execution: &Execution) -> bool {
        let (Some(node), Some(worker)) = (&self.cluster, execution.worker()) else {
            return true;
        };
        node.worker().as_ref() == Some(worker)
    }

    /// Keeps the late receipt of an execution that another worker ends, until it can be written.
    pub(crate) fn keep_receipt(&self, task: &TaskId, late: TaskRecord) {
        if let Some(node) = &self.cluster {
            node.late_receipts.keep(task, late);
        }
    }

    /// Scopes of a new execution.
    fn new_execution(
        &self,
        id: &TaskId,
        trace: Option<Arc<str>>,
        worker: Option<WorkerId>,
    ) -> Result<NewExecution, NotStarted> {
        let (label, side_label) = (format!("task/{id}"), format!("task/{id}/parts"));
        Ok(NewExecution {
            execution: Arc::new(Execution::new(&self.root, &label, trace, worker)?),
            side_scope: self.root.child(side_label, ScopeOptions::default())?,
        })
    }

    /// Runs the engine of an execution that is in the table. Not under the table's lock: a runtime that has ended drops
    /// the engine at once, which takes the execution out again.
    fn spawn_engine(
        self: &Arc<Self>,
        new: NewExecution,
        id: TaskId,
        feed: Arc<TaskFeed>,
        job: ExecutionJob,
        slot: SlotRequest,
    ) -> Acceptance {
        let stream = TaskStream::new(Arc::clone(&self.log), id, feed);
        let scope = new.execution.scope().clone();
        let engine = ExecutionEngine::new(Arc::clone(self), new.execution, stream, new.side_scope);
        let (accepted_tx, accepted) = oneshot::channel();
        // The engine belongs to its scope; nobody waits for its value.
        drop(scope.spawn_engine(engine.run(job, slot, accepted_tx)));
        accepted
    }
}

/// Scopes of an execution that is not in the table yet.
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
