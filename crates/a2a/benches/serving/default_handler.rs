//! Baseline: the server library's own handler with its store in memory, and with the three events of
//! [`crate::product`].

use std::net::SocketAddr;
use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore};
use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::net::TcpListener;

struct ThreeEvents;

impl AgentExecutor for ThreeEvents {
    fn execute(&self, cx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let artifact = Artifact {
            artifact_id: "echo".to_owned(),
            name: None,
            description: None,
            parts: vec![Part::text("hello")],
            metadata: None,
            extensions: None,
        };
        let artifact = StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: cx.task_id.clone(),
            context_id: cx.context_id.clone(),
            artifact,
            append: Some(false),
            last_chunk: Some(true),
            metadata: None,
        });
        let working = status(&cx, TaskState::Working);
        let completed = status(&cx, TaskState::Completed);
        stream::iter([working, artifact, completed].map(Ok)).boxed()
    }

    fn cancel(&self, cx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        stream::iter([Ok(status(&cx, TaskState::Canceled))]).boxed()
    }
}

fn status(cx: &ExecutorContext, state: TaskState) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: cx.task_id.clone(),
        context_id: cx.context_id.clone(),
        status: TaskStatus {
            state,
            message: None,
            timestamp: None,
        },
        metadata: None,
    })
}

/// Serves JSON-RPC in this scope.
pub(crate) async fn serve(scope: &Scope) -> SocketAddr {
    let handler = DefaultRequestHandler::new(ThreeEvents, InMemoryTaskStore::new());
    let router = jsonrpc_router(Arc::new(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let spec = WorkSpec::new(ItemKind::Future, "default handler");
    let served = scope.spawn(spec, |_cx| async move {
        axum::serve(listener, router).await.expect("a listener");
    });
    drop(served.expect("nothing is stopped"));
    address
}
