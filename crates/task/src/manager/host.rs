//! Implements the execution host for the manager: the interface through which an execution calls its manager.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId, WorkerId};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::ManagerInner;
use crate::error::TaskStoreError;
use crate::execution::ExecutionHost;
use crate::executor::{CancelParts, ExecutorError, TaskParts};
use crate::model::{Task, TaskRecord};
use crate::options::TaskOptions;
use crate::task_stream::TaskStream;
use crate::waker::TaskWaker;

impl ExecutionHost for ManagerInner {
    fn options(&self) -> &TaskOptions {
        &self.options
    }

    fn shared_parts(&self) -> Option<&TaskParts> {
        self.shared_parts.as_ref()
    }

    fn create_parts(
        &self,
        task: Arc<Task>,
    ) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        self.factory.create(task)
    }

    fn create_cancel_parts(
        &self,
        task: Arc<Task>,
    ) -> BoxFuture<'static, Result<CancelParts, ExecutorError>> {
        self.factory.create_for_cancel(task)
    }

    fn note(&self, stream: &TaskStream) {
        self.coordinator.note(&self.table, stream);
    }

    fn release(&self, stream: &TaskStream) {
        self.note(stream);
        self.table.lock().release(stream.id());
    }

    fn forget_message(&self, owner: &Arc<str>, message: &MessageId, of: &TaskId) {
        self.table.lock().forget_message(owner, message, of);
    }

    fn release_slot(&self, owner: &Arc<str>) {
        self.table.lock().slots.release(owner);
    }

    fn is_queue_closed(&self) -> bool {
        self.keeps_queue() && self.table.lock().is_draining
    }

    fn keep_waiting(&self, stream: &TaskStream) {
        self.table.lock().keep_waiting(stream.id());
    }

    fn may_start(&self, worker: Option<&WorkerId>) -> bool {
        self.coordinator.may_start(worker)
    }

    fn may_have_work_elsewhere(&self, task: &Task, own: Option<&WorkerId>) -> bool {
        self.coordinator.may_have_work_elsewhere(task, own)
    }

    fn append_announced<'a>(
        &'a self,
        stream: &'a mut TaskStream,
        record: TaskRecord,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        let now = self.now();
        let appended = self.coordinator.append_announced(stream, record, now);
        appended.boxed()
    }

    fn keep_receipt(&self, task: &TaskId, late: TaskRecord) {
        self.coordinator.keep_receipt(task, late);
    }

    fn waker(self: Arc<Self>, task: &TaskId) -> TaskWaker {
        let manager = Arc::downgrade(&self);
        let wake_after = move |task, ended| {
            if let Some(manager) = manager.upgrade() {
                manager.wake_after(task, ended);
            }
        };
        TaskWaker::new(task.clone(), Arc::new(wake_after))
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        let mut is_shut_down = self.is_shut_down.subscribe();
        async move {
            // The sender is part of this manager, so the wait cannot fail.
            let _set = is_shut_down.wait_for(|is_shut_down| *is_shut_down).await;
        }
        .boxed()
    }
}
