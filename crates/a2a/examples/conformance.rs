//! An agent for the A2A TCK, the test kit of the protocol. The prefix of a message's id selects the agent's behaviour.
//! The branch `1.0-dev` of the kit tests version 1.0, and the branch `0.3.x` version 0.3.
//!
//! ```text
//! cargo run -p allstop-a2a --example conformance -- 127.0.0.1:9999
//! ./run_tck.py --sut-host http://127.0.0.1:9999
//! ./run_tck.py --sut-url http://127.0.0.1:9999 --category all --transports jsonrpc
//! ```

use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentDescription, NoAuthentication, PushNotifications, PushOptions,
    ServerOptions, agent_card, grpc_router, http_router, serve,
};
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::{Artifact, ArtifactUpdate, MessagePart, MessageSender, PartContent};
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskManager, TaskMessage,
    TaskOptions, TaskParts, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

/// Duration of the task in the resubscription test of the kit: twice the time limit that the test has for a stream.
const LONG_WORK: Duration = Duration::from_secs(4);

struct ConformanceAgent;

enum Step {
    Write(TaskEvent),
    Work(Duration),
    Fail(&'static str),
}

impl Executor for ConformanceAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            for step in steps(cx.message.id.as_str()) {
                match step {
                    Step::Write(event) => {
                        if cx.events.write(event).await.is_err() {
                            break;
                        }
                    }
                    Step::Work(time) => tokio::select! {
                        () = tokio::time::sleep(time) => {}
                        _cause = cx.scope.stopped_at("work") => break,
                    },
                    Step::Fail(error) => return Err(ExecutorError::new(error)),
                }
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

/// Returns the behaviour for a message with this id. Longer prefixes are compared before shorter prefixes.
fn steps(id: &str) -> Vec<Step> {
    let write = |event| Step::Write(event);
    let work = || write(TaskEvent::state(TaskState::Working));
    let complete = || write(TaskEvent::state(TaskState::Completed));
    let text = |text: &str| MessagePart::text(text);
    let file = || MessagePart {
        content: PartContent::Raw("dGNr".into()),
        media_type: Some("text/plain".into()),
        filename: Some("output.txt".into()),
        ..text("")
    };
    let artifact = |part| write(TaskEvent::artifact(with_part(part)));
    let chunk = |part, append, is_last_chunk| {
        write(TaskEvent::Artifact(ArtifactUpdate {
            artifact: Arc::new(with_part(part)),
            append,
            is_last_chunk,
            metadata: serde_json::Map::new(),
        }))
    };
    let starts = |prefix| id.starts_with(prefix);
    if starts("tck-stream-artifact-chunked") {
        vec![
            work(),
            chunk(text("chunk-1 "), false, false),
            chunk(text("chunk-2"), true, true),
            complete(),
        ]
    } else if starts("test-resubscribe-message-id") {
        vec![work(), Step::Work(LONG_WORK), complete()]
    } else if !starts("tck-") {
        // Version 0.3: the kit sends further messages to each of its tasks, or stops them.
        vec![
            work(),
            artifact(text("output")),
            write(TaskEvent::state(TaskState::InputRequired)),
        ]
    } else if starts("tck-stream-artifact-text") {
        vec![work(), artifact(text("Streamed text content")), complete()]
    } else if starts("tck-stream-artifact-file") {
        vec![work(), artifact(file()), complete()]
    } else if starts("tck-stream-ordering-001") {
        vec![work(), artifact(text("Ordered output")), complete()]
    } else if starts("tck-stream-001") {
        vec![work(), artifact(text("Stream hello from TCK")), complete()]
    } else if starts("tck-stream-003") {
        vec![work(), artifact(text("Stream task lifecycle")), complete()]
    } else if starts("tck-stream-002") {
        vec![complete()]
    } else if starts("tck-artifact-file-url") {
        let url = MessagePart {
            content: PartContent::Url("https://example.com/output.txt".into()),
            ..file()
        };
        vec![artifact(url), complete()]
    } else if starts("tck-artifact-text") {
        vec![artifact(text("Generated text content")), complete()]
    } else if starts("tck-artifact-file") {
        vec![artifact(file()), complete()]
    } else if starts("tck-artifact-data") {
        let data = MessagePart {
            content: PartContent::Data(json!({"key": "value", "count": 42})),
            ..text("")
        };
        vec![artifact(data), complete()]
    } else if starts("tck-message-response") {
        let reply = TaskMessage::text("reply", MessageSender::Agent, "Direct message response");
        vec![write(TaskEvent::Reply(Arc::new(reply)))]
    } else if starts("tck-input-required") {
        vec![write(TaskEvent::state(TaskState::InputRequired))]
    } else if starts("tck-reject-task") {
        vec![Step::Fail("rejected")]
    } else if starts("tck-complete-task") {
        let hello = TaskMessage::text("hello", MessageSender::Agent, "Hello from TCK");
        vec![write(TaskEvent::status(TaskState::Completed, hello))]
    } else {
        let unknown = TaskMessage::text(
            "unknown",
            MessageSender::Agent,
            format!("Unhandled messageId prefix: {id}"),
        );
        vec![write(TaskEvent::status(TaskState::Completed, unknown))]
    }
}

fn with_part(part: MessagePart) -> Artifact {
    Artifact {
        parts: vec![part],
        ..Artifact::text("output", "")
    }
}

#[expect(clippy::print_stdout, reason = "the address, for whoever starts it")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:9999".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    let root = Scope::root("conformance", RootOptions::current());
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let manager = TaskManager::open(
        Arc::clone(&log),
        root.clone(),
        Arc::new(TaskParts::of(ConformanceAgent)),
        TaskOptions::default()
            // The kit sends each message id many times, and expects a new task each time.
            .repetition_max(Duration::ZERO),
    );
    let manager = manager.await?;
    // The kit's webhook runs on this machine.
    let options = PushOptions::default().allowed(vec!["127.0.0.0/8".parse()?, "::1/128".parse()?]);
    let push = PushNotifications::open(manager.clone(), log, root.clone(), options).await?;
    let modes = ["text", "text/plain", "application/json"];
    let modes: Vec<_> = modes.map(str::to_owned).into();
    let mut card = agent_card(&AgentDescription {
        name: "Allstop conformance agent".into(),
        description: "Behaves as the message's id says, for the A2A TCK.".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        http_url: format!("http://{address}"),
        grpc_url: Some(address.to_string()),
    });
    card.default_input_modes.clone_from(&modes);
    let service = Arc::new(A2aService::new(manager).input_modes(modes).push(push));
    let access = AccessControl::new(Arc::new(NoAuthentication));
    let router = http_router(&service, card, access.clone()).merge(grpc_router(&service, access));
    println!("listening on http://{address}");
    let serving = serve(listener, router, root, ServerOptions::default());
    tokio::select! {
        () = serving => {}
        ended = tokio::signal::ctrl_c() => ended?,
    }
    Ok(())
}
