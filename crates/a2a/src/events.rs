//! Events of a task with their numbers, for streams that a client can resume. Between them, pieces of text for display.

use a2a::{A2AError, StreamResponse};
use allstop_log::Version;
use allstop_task::{LiveItem, SubscriptionItem, Task, TaskSubscription};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};

use crate::errors;
use crate::response_memory::RequestMemory;
use crate::to_wire::{self, TaskDetail};

/// Event with the number of its record in the task's log. A client that resumes after the event sends this number as
/// `Last-Event-ID`. A piece of text has no number, because the log does not contain it.
pub(crate) type NumberedEvent = Result<(Option<Version>, StreamResponse), A2AError>;

/// Returns the numbered events and the live text of a subscription. A snapshot is an event with the whole task, which is
/// built within the memory of the request. `task` supplies the ids of the task for the other events.
pub(crate) fn numbered(
    subscription: TaskSubscription,
    task: &Task,
    detail: TaskDetail,
    memory: RequestMemory,
) -> BoxStream<'static, NumberedEvent> {
    stream::unfold(
        (subscription.with_live_text(), without_content(task), memory),
        move |(mut subscription, task, memory)| async move {
            loop {
                let event = match subscription.next().await? {
                    Ok(LiveItem::Piece(piece)) => Ok((None, to_wire::piece(&piece, &task))),
                    Ok(LiveItem::Durable(SubscriptionItem::Snapshot(version, snapshot))) => {
                        memory.ensure(to_wire::bytes(&snapshot, detail)).await;
                        let event = match &snapshot.reply {
                            Some(reply) => {
                                StreamResponse::Message(to_wire::reply(reply, &snapshot))
                            }
                            None => StreamResponse::Task(to_wire::task(&snapshot, detail)),
                        };
                        Ok((Some(version), event))
                    }
                    Ok(LiveItem::Durable(SubscriptionItem::Update(update))) => {
                        let Some(event) = to_wire::event(&update.record, &task) else {
                            continue;
                        };
                        Ok((Some(update.version), event))
                    }
                    Err(error) => Err(errors::of_read(&error)),
                };
                return Some((event, (subscription, task, memory)));
            }
        },
    )
    .boxed()
}

/// The task without its messages and artifacts, because a stream can be open for long.
fn without_content(task: &Task) -> Task {
    Task {
        artifacts: Vec::new(),
        history: Vec::new(),
        reply: None,
        ..task.clone()
    }
}

/// Ends a stream with an error when the future resolves: the client has lost its access.
pub(crate) fn until_revoked(
    events: BoxStream<'static, NumberedEvent>,
    revoked: BoxFuture<'static, ()>,
) -> BoxStream<'static, NumberedEvent> {
    stream::unfold(Some((events, revoked)), |open| async move {
        let (mut events, mut revoked) = open?;
        tokio::select! {
            biased;
            () = &mut revoked => Some((Err(errors::revoked()), None)),
            event = events.next() => Some((event?, Some((events, revoked)))),
        }
    })
    .boxed()
}
