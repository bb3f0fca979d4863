//! Events of a task with their numbers, for streams that a client can resume. Between them, pieces of text for display.

use std::sync::Arc;

use a2a::{A2AError, StreamResponse};
use allstop_log::Version;
use allstop_task::{LiveItem, SubscriptionItem, Task, TaskSubscription};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};

use crate::errors;
use crate::to_wire::{self, TaskDetail};

/// Event with the number of its record in the task's log. A client that resumes after the event sends this number as
/// `Last-Event-ID`. A piece of text has no number, because the log does not contain it.
pub(crate) type NumberedEvent = Result<(Option<Version>, StreamResponse), A2AError>;

/// Returns the numbered events and the live text of a subscription. A snapshot is an event with the whole task. Until the first snapshot,
/// `task` supplies the ids of the task for the events.
pub(crate) fn numbered(
    subscription: TaskSubscription,
    task: Arc<Task>,
    detail: TaskDetail,
) -> BoxStream<'static, NumberedEvent> {
    stream::unfold(
        (subscription.with_live_text(), task),
        move |(mut subscription, mut task)| async move {
            loop {
                let event = match subscription.next().await? {
                    Ok(LiveItem::Piece(piece)) => Ok((None, to_wire::piece(&piece, &task))),
                    Ok(LiveItem::Durable(SubscriptionItem::Snapshot(version, snapshot))) => {
                        task = snapshot;
                        let event = match &task.reply {
                            Some(reply) => StreamResponse::Message(to_wire::reply(reply, &task)),
                            None => StreamResponse::Task(to_wire::task(&task, detail)),
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
                return Some((event, (subscription, task)));
            }
        },
    )
    .boxed()
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
