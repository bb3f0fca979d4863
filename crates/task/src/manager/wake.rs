//! Continues a task at rest (no execution runs) without a message.

use std::sync::Arc;

use allstop_core::TaskId;
use futures::future::BoxFuture;

use super::ManagerInner;
use super::table::TaskToStop;
use crate::cluster::ClusterNode;
use crate::execution::{Execution, ExecutionJob};

/// Decision of the table about a request to continue a task.
pub(super) enum WakeAdmission {
    /// An execution of the task runs: wait for its release, and check again.
    Behind(Arc<Execution>),
    /// The task continues now, has ended, or cannot continue.
    Done,
}

impl ManagerInner {
    pub(super) fn wake_after(self: Arc<Self>, task: TaskId, ended: BoxFuture<'static, ()>) {
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
        self.wake_at_rest(id).await
    }

    pub(super) async fn wake_in_cluster(
        self: &Arc<Self>,
        node: &ClusterNode,
        id: &TaskId,
    ) -> WakeAdmission {
        match self.stored(id).await {
            Ok((version, task)) => {
                let is_open = task.is_executing || task.awaits_execution;
                let rests = !is_open && !task.has_ended() && task.stop_requested.is_none();
                if let Some(worker) = node.worker().filter(|_| rests) {
                    self.take(version, &task, Some(worker));
                }
            }
            Err(error) => {
                tracing::warn!(%error, task = %id, "a task at rest is not continued");
            }
        }
        WakeAdmission::Done
    }

    pub(super) fn wake_locally(self: &Arc<Self>, id: &TaskId) -> WakeAdmission {
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
        let job = ExecutionJob::FromLog;
        // The executor continues only after other work has ended, so the execution needs no slot. No client waits for
        // the acceptance.
        drop(self.start_engine(table, scopes, id, feed, job, None));
        WakeAdmission::Done
    }
}
