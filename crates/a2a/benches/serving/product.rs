//! The measured product: a task manager, and its server on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, ANONYMOUS, AccessControl, AgentDescription, NoAuthentication, PLACE_LIMITS,
    ServerOptions, agent_card, http_router,
};
use allstop_core::receipt::ItemKind;
use allstop_host::Places;
use allstop_log::Log;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    AcceptedTask, ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskManager,
    TaskMessage, TaskOptions, TaskParts, TaskRequest, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpListener;

/// Owner of all tasks of [`begin`].
pub(crate) const OWNER: &str = ANONYMOUS;

/// Executor that writes the same three events as the baseline.
pub(crate) struct ThreeEvents;

impl Executor for ThreeEvents {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            let events = [
                TaskEvent::state(TaskState::Working),
                TaskEvent::artifact(Artifact::text("echo", "hello")),
                TaskEvent::state(TaskState::Completed),
            ];
            for event in events {
                cx.events.write(event).await.expect("nobody stops it");
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

/// Creates a root scope with this grace period: the time in which stopped work may end by itself.
pub(crate) fn root(grace: Duration) -> Scope {
    let mut options = RootOptions::current();
    options.grace = grace;
    Scope::root("bench", options)
}

pub(crate) async fn manager(
    scope: &Scope,
    log: Arc<dyn Log>,
    executor: impl Executor + 'static,
) -> TaskManager {
    let parts = Arc::new(TaskParts::of(executor));
    let opened = TaskManager::open(log, scope.clone(), parts, TaskOptions::default());
    opened.await.expect("a new log")
}

/// Sends a message that starts a new task.
pub(crate) async fn begin(manager: &TaskManager, id: usize, text: &str) -> AcceptedTask {
    let request = TaskRequest::new(
        OWNER,
        TaskMessage::text(id.to_string(), MessageSender::User, text),
    );
    manager.execute(request).await.expect("a new message")
}

/// Serves all HTTP bindings, with all layers of `allstop serve`.
pub(crate) async fn serve(scope: &Scope, manager: TaskManager) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let card = agent_card(&AgentDescription {
        name: "bench".to_owned(),
        description: "Answers with three events.".to_owned(),
        version: "1".to_owned(),
        http_url: format!("http://{address}"),
        grpc_url: None,
    });
    let access = AccessControl::new(Arc::new(NoAuthentication));
    let router = http_router(&Arc::new(A2aService::new(manager)), card, access);
    let spec = WorkSpec::new(ItemKind::Future, "listener");
    let connections = scope.clone();
    let options = ServerOptions::default()
        // A stalled subscriber of a benchmark reads its events at the end.
        .places(Places::new(
            PLACE_LIMITS.stall_time_max(Duration::from_hours(1)),
        ));
    let served = scope.spawn(spec, |_cx| {
        allstop_a2a::serve(listener, router, connections, options)
    });
    drop(served.expect("nothing is stopped"));
    address
}
