//! Plays one reply as a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use allstop_core::{CallId, ToolCall};
use futures::Stream;
use tokio::time::Sleep;

use super::choose::ChosenReply;
use super::reply::{Pause, ReplyStep};
use crate::{FinishReason, ModelError, ModelEvent};

/// Stream of one reply. It allocates only a timer, and only if the script contains a wait.
pub(super) struct Playback {
    chosen: ChosenReply,
    at: usize,
    calls: usize,
    sleep: Option<Pin<Box<Sleep>>>,
    done: bool,
}

impl Playback {
    pub(super) fn new(chosen: ChosenReply) -> Self {
        Self {
            chosen,
            at: 0,
            calls: 0,
            sleep: None,
            done: false,
        }
    }

    /// Returns an id that is unique in the conversation. The id is the same each time the script is played.
    fn next_call_id(&mut self) -> CallId {
        self.calls += 1;
        format!("call_{}_{}", self.chosen.assistants + 1, self.calls).into()
    }
}

impl Stream for Playback {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        if let Some(sleep) = &mut self.sleep {
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        loop {
            let at = self.at;
            let Some(step) = self.chosen.reply.definition.steps.get(at) else {
                self.done = true;
                let reason = self
                    .chosen
                    .reply
                    .definition
                    .finish
                    .unwrap_or(FinishReason::Done);
                return Poll::Ready(Some(Ok(ModelEvent::End(reason))));
            };
            let event = match step {
                ReplyStep::Text(text) => ModelEvent::Text(text.clone()),
                ReplyStep::Reasoning(text) => ModelEvent::Reasoning(text.clone()),
                ReplyStep::Progress { bytes } => ModelEvent::ToolCallProgress { bytes: *bytes },
                ReplyStep::Usage(usage) => ModelEvent::Usage(*usage),
                ReplyStep::Call {
                    id,
                    name,
                    arguments,
                } => {
                    let (id, name, arguments) = (id.clone(), name.clone(), arguments.clone());
                    let id = id.unwrap_or_else(|| self.next_call_id());
                    ModelEvent::ToolCall(ToolCall {
                        id,
                        name,
                        arguments,
                    })
                }
                // No waker is registered: the stream hangs until it is dropped.
                ReplyStep::Pause(Pause::Forever) => return Poll::Pending,
                ReplyStep::Pause(Pause::For(duration)) => {
                    let mut sleep = Box::pin(tokio::time::sleep(*duration));
                    self.at = at + 1;
                    if sleep.as_mut().poll(cx).is_pending() {
                        self.sleep = Some(sleep);
                        return Poll::Pending;
                    }
                    continue;
                }
                ReplyStep::Fail(error) => {
                    let error = error.clone();
                    self.done = true;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            self.at = at + 1;
            return Poll::Ready(Some(Ok(event)));
        }
    }
}
