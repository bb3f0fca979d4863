//! Several managers of tasks with real servers. Each manager has a separate connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind};
use allstop_log::Log;
use allstop_nats::NatsLog;
use allstop_scope::Scope;
use allstop_task::model::MessageSender;
use allstop_task::{
    ClusterOptions, ExecutionCx, Executor, ExecutorError, ExecutorReturn, ListFilter, LiveItem,
    SubscriptionItem, TaskEvent, TaskManager, TaskMessage, TaskOptions, TaskParts, TaskRecord,
    TaskRequest, TaskState,
};
use allstop_testkit::nats_server::{NatsCluster, NatsServer};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{open, scope};

/// Maximum duration of a wait in these tests.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Executor that completes immediately, or works until it is stopped, perhaps with live text. The message decides which.
#[derive(Clone)]
struct Obedient;

impl Executor for Obedient {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            let write = async |state| cx.events.write(TaskEvent::state(state)).await;
            write(TaskState::Working).await.expect("it runs");
            if cx.message.id.as_str() == "long text" {
                cx.live_text.restart("answer", None);
                cx.live_text.push("it begins");
            }
            if cx.message.id.as_str().starts_with("long") {
                cx.scope.stopped_at("working").await;
            } else {
                write(TaskState::Completed).await.expect("it runs");
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

pub(crate) struct Node {
    pub(crate) manager: TaskManager,
    _log: NatsLog,
    _scope: Scope,
}

pub(crate) async fn node(url: String, replicas: usize, concurrency: usize) -> Node {
    let log = open(url, replicas).await;
    let link = log.link().await.expect("the servers have a link");
    let cluster = ClusterOptions::new(link).concurrency(concurrency);
    let scope = scope();
    let shared: Arc<dyn Log> = Arc::new(log.clone());
    let parts = Arc::new(TaskParts::of(Obedient));
    let options = TaskOptions::default();
    let manager = TaskManager::join(shared, cluster, scope.clone(), parts, options);
    Node {
        manager: manager.expect("its scope is open"),
        _log: log,
        _scope: scope,
    }
}

pub(crate) fn request(message: &str) -> TaskRequest {
    TaskRequest::new(
        "alice",
        TaskMessage::text(message, MessageSender::User, "do it"),
    )
}

/// A message to one node runs on the other node, and a stop at one node reaches the other. Both nodes list the same
/// tasks.
async fn tasks_cross_nodes(url: String, replicas: usize) {
    let front = node(url.clone(), replicas, 0).await;
    let worker = node(url, replicas, 8).await;
    let mut short = front
        .manager
        .execute(request("short"))
        .await
        .expect("it works");
    let mut states = Vec::new();
    while let Some(item) = timeout(SOON, short.subscription.next())
        .await
        .expect("it works")
    {
        if let SubscriptionItem::Update(update) = item.expect("it works")
            && let TaskRecord::TaskEnded { status, .. } = &*update.record
        {
            states.push(status.state);
        }
    }
    assert_eq!(states, [TaskState::Completed]);
    assert!(
        front
            .manager
            .execute(request("short"))
            .await
            .expect("it works")
            .is_repeated
    );

    let mut long = front
        .manager
        .execute(request("long"))
        .await
        .expect("it works");
    while let Some(item) = timeout(SOON, long.subscription.next())
        .await
        .expect("it works")
    {
        if let SubscriptionItem::Update(update) = item.expect("it works")
            && matches!(*update.record, TaskRecord::StatusChanged { .. })
        {
            break;
        }
    }
    let begun = Instant::now();
    let stop = front
        .manager
        .cancel(&long.task_id, Cause::new(CauseKind::User));
    let outcome = stop.await.expect("it works");
    assert!(outcome.receipt.quiet() && outcome.receipt.cancel_observed());
    assert_eq!(outcome.receipt.items()[0].name.as_ref(), "executor");
    assert!(begun.elapsed() < SOON);

    let page = worker
        .manager
        .list(&ListFilter::default(), None, 10)
        .await
        .expect("it works");
    assert_eq!(page.total, 2);
    let workers = front.manager.workers().await.expect("it works");
    assert_eq!((workers.len(), workers[0].concurrency), (1, 8));
    let report = worker
        .manager
        .shutdown(Duration::from_secs(5), "test")
        .await;
    assert_eq!(report.not_stored, 0);
    assert!(front.manager.workers().await.expect("it works").is_empty());
}

/// The text of a task reaches a subscriber at another node, and is not stored.
#[tokio::test]
async fn live_text_crosses_nodes() {
    let folder = TempDir::new().expect("a folder");
    let server = NatsServer::start(folder.path());
    let front = node(server.url(), 1, 0).await;
    let _worker = node(server.url(), 1, 8).await;
    let accepted = front.manager.execute(request("long text")).await;
    let accepted = accepted.expect("it works");
    let id = accepted.task_id;
    let mut live = accepted.subscription.with_live_text();
    let piece = timeout(SOON, async {
        loop {
            let item = live.next().await.expect("the task runs");
            if let LiveItem::Piece(piece) = item.expect("it works") {
                return piece;
            }
        }
    });
    let piece = piece.await.expect("a piece");
    assert_eq!((&*piece.text, piece.append), ("it begins", false));
    let stop = front.manager.cancel(&id, Cause::new(CauseKind::User));
    let outcome = stop.await.expect("it works");
    assert!(outcome.receipt.quiet() && outcome.task.artifacts.is_empty());
}

#[tokio::test]
async fn tasks_cross_nodes_on_one_server() {
    let folder = TempDir::new().unwrap();
    let server = NatsServer::start(folder.path());
    tasks_cross_nodes(server.url(), 1).await;
}

#[tokio::test]
async fn tasks_cross_nodes_on_three_servers() {
    let folder = TempDir::new().unwrap();
    let servers = NatsCluster::start(folder.path());
    tasks_cross_nodes(servers.url(), 3).await;
}
