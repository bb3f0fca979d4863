//! Continuation of a task at rest, without a message.

use std::sync::Arc;

use allstop_core::TaskId;
use futures::future::BoxFuture;

use super::ManagerInner;
use super::slot_guard::SlotRequest;
use super::table::TaskToStop;
use crate::execution::{Execution, ExecutionJob};
use crate::task_stream::read_task;
use crate::waker::TaskWaker;

/// Answer of the table to a wake.
enum WakeAdmission {
    /// The task runs: look again after the end of this execution.
    Behind(Arc<Execution>),
    /// The task continues now, has ended, or cannot continue.
    Done,
}

impl ManagerInner {
    /// A handle for the executor of a task.
    pub(crate) fn waker(self: &Arc<Self>, task: &TaskId) -> TaskWaker {
        let manager = Arc::downgrade(self);
        let wake_after = move |task, ended| {
            if let Some(manager) = manager.upgrade() {
                manager.wake_after(task, ended);
            }
        };
        TaskWaker::new(task.clone(), Arc::new(wake_after))
    }

    fn wake_after(self: Arc<Self>, task: TaskId, ended: BoxFuture<'static, ()>) {
        let (scope, manager) = (self.root.clone(), Arc::downgrade(&self));
        drop(self);
        let root = scope.clone();
        drop(scope.spawn_engine(async move {
            tokio::select! {
                biased;
                () = root.stopped() => return,
                () = ended => {}
            }
            while let Some(manager) = manager.upgrade() {
                match manager.wake(&task).await {
                    WakeAdmission::Done => return,
                    WakeAdmission::Behind(execution) => {
                        drop(manager);
                        execution.released().await;
                    }
                }
            }
        }));
    }

    async fn wake(self: &Arc<Self>, id: &TaskId) -> WakeAdmission {
        if let Some(execution) = self.execution_here(id) {
            return WakeAdmission::Behind(execution);
        }
        if let Some(node) = &self.cluster {
            let rests = match read_task(&*self.log, id).await {
                Ok(Some((version, task))) => {
                    let is_open = task.is_executing || task.awaits_execution;
                    let rests = !is_open && !task.has_ended() && task.stop_requested.is_none();
                    rests.then_some((version, task))
                }
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(%error, task = %id, "a task at rest is not continued");
                    None
                }
            };
            if let (Some((version, task)), Some(worker)) = (rests, node.worker()) {
                self.take(version, &task, Some(worker));
            }
            return WakeAdmission::Done;
        }
        let mut table = self.table.lock();
        match table.stop_target(id) {
            Ok(TaskToStop::Running(execution)) => return WakeAdmission::Behind(execution),
            Ok(TaskToStop::AtRest) if table.may_wake(id) => {}
            _ => return WakeAdmission::Done,
        }
        let Ok(scopes) = self.new_execution(id, None, None) else {
            return WakeAdmission::Done;
        };
        table.enter(id, Arc::clone(&scopes.execution));
        let feed = table.feed(id).unwrap_or_default();
        drop(table);
        let job = ExecutionJob::FromLog;
        // Its work has ended: it needs no slot, and the acceptance has no recipient.
        drop(self.spawn_engine(scopes, id.clone(), feed, job, SlotRequest::NotNeeded));
        WakeAdmission::Done
    }
}
