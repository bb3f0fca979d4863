//! Agent that follows the steps in its message. Outside the protocol, clients can ask which of its tasks still run.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_task::model::{Artifact, ArtifactUpdate, MessagePart, MessageSender, PartContent};
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskMessage, TaskState,
};
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// The steps in a message are separated by `;`. `chunks N`: emits the next N numbers, one event each. `gate NAME`:
/// waits until the client opens this gate. `ignore`: ignores a stop until force ends the task. `parts`: emits an
/// artifact with the parts of the message. `reply`: answers with a message instead of a task. `ask`, `complete`,
/// `fail`: set the state of the task.
pub(super) struct SteppedAgent(pub(super) ClientChannel);

/// Channel outside the protocol, through which clients ask for running tasks and open the gates of tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientChannel {
    running: watch::Sender<BTreeSet<String>>,
    opened_gates: watch::Sender<BTreeSet<String>>,
}

/// Marks the executor of a task as running, until the executor returns, panics or is dropped.
struct RunningMark(ClientChannel, String);

impl RunningMark {
    fn new(channel: &ClientChannel, task: String) -> Self {
        channel.running.send_modify(|running| {
            running.insert(task.clone());
        });
        Self(channel.clone(), task)
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| {
            running.remove(&self.1);
        });
    }
}

impl ClientChannel {
    /// Ids of the tasks whose executors run.
    pub(super) fn running(&self) -> BTreeSet<String> {
        self.running.borrow().clone()
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/test/running/{task}", get(is_running))
            .route("/test/gates/{name}", post(open_gate))
            .with_state(self.clone())
    }
}

async fn is_running(State(channel): State<ClientChannel>, Path(task): Path<String>) -> String {
    channel.running().contains(&task).to_string()
}

async fn open_gate(State(channel): State<ClientChannel>, Path(name): Path<String>) {
    channel.opened_gates.send_modify(|opened| {
        opened.insert(name);
    });
}

impl Executor for SteppedAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let channel = self.0.clone();
        async move {
            let _mark = RunningMark::new(&channel, cx.task.id.to_string());
            let mut number = 0;
            for step in text_of(&cx.message).split(';') {
                let (step, argument) = step.trim().split_once(' ').unwrap_or((step.trim(), ""));
                let mut events = Vec::new();
                match step {
                    "chunks" => {
                        let count: u32 = argument.parse().expect("a number of chunks");
                        events.extend((1..=count).map(|next| chunk(number + next)));
                        number += count;
                    }
                    "gate" => {
                        let mut opened = channel.opened_gates.subscribe();
                        tokio::select! {
                            _opened = opened.wait_for(|opened| opened.contains(argument)) => {}
                            _cause = cx.scope.stopped_at("gate") => break,
                        }
                    }
                    "ignore" => std::future::pending().await,
                    "parts" => {
                        let mut artifact = Artifact::text("parts", "");
                        artifact.parts.clone_from(&cx.message.parts);
                        events.push(TaskEvent::artifact(artifact));
                    }
                    "reply" => {
                        let reply = TaskMessage::text("reply", MessageSender::Agent, argument);
                        events.push(TaskEvent::Reply(Arc::new(reply)));
                    }
                    "ask" => {
                        let question =
                            TaskMessage::text("question", MessageSender::Agent, argument);
                        events.push(TaskEvent::status(TaskState::InputRequired, question));
                    }
                    "complete" => events.push(TaskEvent::state(TaskState::Completed)),
                    "fail" => return Err(ExecutorError::new("as the message says")),
                    other => return Err(ExecutorError::new(format!("no step {other:?}"))),
                }
                for event in events {
                    if cx.events.write(event).await.is_err() {
                        return Ok(ExecutorReturn::Finished);
                    }
                }
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

fn chunk(number: u32) -> TaskEvent {
    TaskEvent::Artifact(ArtifactUpdate {
        artifact: Arc::new(Artifact::text("numbers", number.to_string())),
        append: number > 1,
        is_last_chunk: false,
        metadata: serde_json::Map::new(),
    })
}

fn text_of(message: &TaskMessage) -> String {
    let texts = message
        .parts
        .iter()
        .filter_map(|MessagePart { content, .. }| match content {
            PartContent::Text(text) => Some(&**text),
            _ => None,
        });
    texts.collect()
}
