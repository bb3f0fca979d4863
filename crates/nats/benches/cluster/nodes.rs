//! Nodes of the cluster, and their executor.

use std::sync::Arc;
use std::time::Instant;

use allstop_core::TaskId;
use allstop_log::Log;
use allstop_nats::{NatsLog, NatsOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::MessageSender;
use allstop_task::{
    ClusterOptions, ExecutionCx, Executor, ExecutorError, ExecutorReturn, SubscriptionItem,
    TaskEvent, TaskManager, TaskMessage, TaskOptions, TaskParts, TaskRecord, TaskRequest,
    TaskState, TaskSubscription,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

pub(crate) struct Servers {
    pub url: String,
    pub replicas: usize,
}

/// Executor that either completes immediately, or waits for its stop and sends the time of the stop.
#[derive(Clone)]
pub(crate) struct BenchExecutor {
    pub stopped: mpsc::Sender<(TaskId, Instant)>,
}

impl Executor for BenchExecutor {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let stopped = self.stopped.clone();
        async move {
            let write = async |state| cx.events.write(TaskEvent::state(state)).await;
            if cx.message.id.as_str().starts_with("long") {
                write(TaskState::Working).await.expect("it runs");
                cx.scope.stopped_at("working").await;
                let seen = (cx.task.id.clone(), Instant::now());
                stopped.send(seen).await.expect("the benchmark waits");
            } else {
                write(TaskState::Completed).await.expect("it runs");
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

impl Servers {
    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.url.split(',').collect()
    }

    /// Creates a node that runs at most this number of executions at the same time.
    pub(crate) async fn node(&self, executor: &BenchExecutor, concurrency: usize) -> TaskManager {
        let scope = Scope::root("node", RootOptions::current());
        let mut options = NatsOptions::new(self.url.as_str());
        options.replicas = self.replicas;
        let log = NatsLog::open(options, &scope).await.expect("servers");
        let link = log.link().await.expect("the servers have a link");
        let cluster = ClusterOptions::new(link).concurrency(concurrency);
        let log: Arc<dyn Log> = Arc::new(log);
        let parts = Arc::new(TaskParts::of(executor.clone()));
        let joined = TaskManager::join(log, cluster, scope, parts, TaskOptions::default());
        joined.expect("its scope is open")
    }
}

pub(crate) fn request(message: &str) -> TaskRequest {
    TaskRequest::new(
        "bench",
        TaskMessage::text(message, MessageSender::User, "do it"),
    )
}

/// Waits for a record of a task.
pub(crate) async fn until(events: &mut TaskSubscription, is_it: impl Fn(&TaskRecord) -> bool) {
    while let Some(item) = events.next().await {
        if let SubscriptionItem::Update(update) = item.expect("the servers work")
            && is_it(&update.record)
        {
            return;
        }
    }
}
