// A task manager with an executor and a canceler: a task starts, a stop ends it, and the receipt is stored with the task.

use std::sync::Arc;

use allstop::log::MemoryLog;
use allstop::prelude::*;
use allstop::task::model::MessageSender;
use allstop::task::{
    CancelCx, Canceler, ExecutionCx, Executor, ExecutorError, ExecutorReturn, SubscriptionItem,
    TaskEvent, TaskManager, TaskMessage, TaskOptions, TaskParts, TaskRecord, TaskRequest,
    TaskState,
};
use futures::future::BoxFuture;

struct Backup;

impl Executor for Backup {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        Box::pin(async move {
            // An error means that the task has ended, so the executor returns.
            let _ended = cx.events.write(TaskEvent::state(TaskState::Working)).await;
            cx.scope.stopped_at("between two files").await;
            Ok(ExecutorReturn::Finished)
        })
    }
}

/// Ends work outside the scope of the executor.
impl Canceler for Backup {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        println!("canceler: unlocks the disk");
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scope = Scope::root("tasks", RootOptions::current());
    let parts = Arc::new(TaskParts::of(Backup).canceler(Backup));
    let options = TaskOptions::default();
    let manager = TaskManager::open(Arc::new(MemoryLog::new()), scope, parts, options).await?;

    let message = TaskMessage::text("m1", MessageSender::User, "Back up the disk.");
    let mut accepted = manager.execute(TaskRequest::new("ann", message)).await?;
    while let Some(item) = accepted.subscription.next().await {
        if let SubscriptionItem::Update(update) = item?
            && matches!(*update.record, TaskRecord::StatusChanged { .. })
        {
            break; // It works.
        }
    }
    let cancelled = manager.cancel(&accepted.task_id, CauseKind::User.into());
    let outcome = cancelled.await?;
    println!("{}\n{}", outcome.task.status.state, outcome.receipt);
    Ok(())
}
