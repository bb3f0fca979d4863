// Two managers over NATS: a worker runs the task, and a front end accepts and stops it. The URL is in NATS_URL.

use std::sync::Arc;

use allstop::nats::{NatsLog, NatsOptions};
use allstop::prelude::*;
use allstop::task::model::MessageSender;
use allstop::task::{
    ClusterOptions, ExecutionCx, Executor, ExecutorError, ExecutorReturn, SubscriptionItem,
    TaskManager, TaskMessage, TaskOptions, TaskParts, TaskRecord, TaskRequest,
};
use futures::future::BoxFuture;

struct Backup;

impl Executor for Backup {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        Box::pin(async move {
            cx.scope.stopped_at("between two files").await;
            Ok(ExecutorReturn::Finished)
        })
    }
}

/// Joins the cluster. A manager with a concurrency of 0 accepts and stops tasks, and runs none.
async fn join(concurrency: usize) -> Result<TaskManager, Box<dyn std::error::Error>> {
    #[expect(clippy::disallowed_methods, reason = "a program reads its environment")]
    let url = std::env::var("NATS_URL").unwrap_or("nats://127.0.0.1:4222".into());
    let scope = Scope::root("manager", RootOptions::current());
    let log = NatsLog::open(NatsOptions::new(url), &scope).await?;
    let mut cluster = ClusterOptions::new(log.link().await?);
    cluster.concurrency = concurrency;
    let (parts, options) = (Arc::new(TaskParts::of(Backup)), TaskOptions::default());
    let joined = TaskManager::join(Arc::new(log), cluster, scope, parts, options);
    Ok(joined?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (front, _worker) = (join(0).await?, join(4).await?);
    let message = TaskMessage::text("m1", MessageSender::User, "Back up the disk.");
    let mut accepted = front.execute(TaskRequest::new("ann", message)).await?;
    while let Some(item) = accepted.subscription.next().await {
        if let SubscriptionItem::Update(update) = item?
            && matches!(*update.record, TaskRecord::ExecutionStarted { .. })
        {
            println!("the front end accepts, the worker runs");
            break;
        }
    }
    let cancelled = front.cancel(&accepted.task_id, CauseKind::User.into());
    let outcome = cancelled.await?;
    println!("{}\n{}", outcome.task.status.state, outcome.receipt);
    Ok(())
}
