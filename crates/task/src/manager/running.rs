//! The running tasks of a process.

use std::time::Duration;

use allstop_core::TaskId;
use allstop_core::receipt::ReceiptItem;

use super::TaskManager;

/// A task that has an execution in this process.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningTask {
    /// Id of the task.
    pub id: TaskId,
    /// Time since the request for the execution.
    pub age: Duration,
    /// Its work, as a dry run of a stop finds it.
    pub work: Vec<ReceiptItem>,
}

impl TaskManager {
    /// Lists the tasks that have an execution in this process, in the order of their ids. In a cluster, other processes
    /// may run further tasks.
    pub fn running_here(&self) -> Vec<RunningTask> {
        let mut executions = self.inner.table.lock().executions_by_task();
        executions.sort_by(|(one, _), (other, _)| one.cmp(other));
        let tasks = executions.into_iter().map(|(id, execution)| RunningTask {
            id,
            age: execution.age(),
            work: execution
                .scope()
                .running()
                .into_iter()
                .map(ReceiptItem::not_asked)
                .collect(),
        });
        tasks.collect()
    }

    /// True if the task has an execution in this process.
    pub fn runs_here(&self, id: &TaskId) -> bool {
        self.inner.execution_here(id).is_some()
    }
}
