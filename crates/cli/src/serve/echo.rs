//! The built-in agent `echo`: needs no model. The task of each message has three events.

use allstop_task::model::{Artifact, MessagePart, PartContent};
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskMessage, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Agent whose task goes to the state `working`, returns the text of the message as an artifact, and ends in the state
/// `completed`.
#[derive(Debug)]
pub(crate) struct EchoAgent;

impl Executor for EchoAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            let events = [
                TaskEvent::state(TaskState::Working),
                TaskEvent::artifact(Artifact::text("echo", text_of(&cx.message))),
                TaskEvent::state(TaskState::Completed),
            ];
            for event in events {
                if cx.events.write(event).await.is_err() {
                    break; // stopped
                }
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }

    /// An execution of this agent has no effects, so it can be repeated after a crash.
    fn can_resume(&self, _task: &allstop_task::Task) -> bool {
        true
    }
}

fn text_of(message: &TaskMessage) -> String {
    let texts = message
        .parts
        .iter()
        .filter_map(|MessagePart { content, .. }| match content {
            PartContent::Text(text) => Some(&**text),
            _ => None,
        });
    texts.collect::<Vec<_>>().join("\n")
}
