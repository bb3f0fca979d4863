//! Events of a task with their numbers, for streams that a client can resume. Between them, pieces of text for display.

use std::time::Duration;

use a2a::{A2AError, StreamResponse};
use allstop_log::Version;
use allstop_task::{LiveItem, LiveSubscription, SubscriptionItem, Task, TaskSubscription};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use tokio::time::timeout;

use crate::errors;
use crate::response_memory::RequestMemory;
use crate::to_wire::{self, TaskDetail};

/// Event with the number of its record in the task's log. A client that resumes after the event sends this number as
/// `Last-Event-ID`. A piece of text has no number, because the log does not contain it.
pub(crate) type NumberedEvent = Result<(Option<Version>, StreamResponse), A2AError>;

/// First event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamStart {
    /// The task, or the reply of its executor if the reply comes within [`REPLY_WAIT`].
    TaskOrReply,
    /// The task.
    Task,
    /// An update of a task that the client knows.
    Update,
}

/// Time in which a reply is the only event of a stream. A stream contains one message or the events of a task
/// (<https://a2a-protocol.org/latest/specification/#312-send-streaming-message>), and the executor decides which. A client
/// needs the id of a task for a stop, so a task that runs for longer is sent.
const REPLY_WAIT: Duration = Duration::from_millis(250);

/// Returns the numbered events and the live text of a subscription. A snapshot is an event with the whole task, which is
/// built within the memory of the request. `task` supplies the ids of the task for the other events.
pub(crate) fn numbered(
    subscription: TaskSubscription,
    task: &Task,
    start: StreamStart,
    detail: TaskDetail,
    memory: RequestMemory,
) -> BoxStream<'static, NumberedEvent> {
    let events = TaskEventStream {
        subscription: subscription.with_live_text(),
        task: without_content(task),
        detail,
        memory,
        start,
        next: NextEvent::Unread,
    };
    stream::unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((event, events))
    })
    .boxed()
}

/// Events of a task for one client.
struct TaskEventStream {
    subscription: LiveSubscription,
    task: Task,
    detail: TaskDetail,
    memory: RequestMemory,
    start: StreamStart,
    next: NextEvent,
}

/// Next event of the stream.
enum NextEvent {
    Unread,
    Read(Box<NumberedEvent>),
    /// The stream ends.
    Absent,
}

impl TaskEventStream {
    async fn next(&mut self) -> Option<NumberedEvent> {
        let event = match std::mem::replace(&mut self.next, NextEvent::Unread) {
            NextEvent::Unread => self.read().await?,
            NextEvent::Read(event) => *event,
            NextEvent::Absent => return None,
        };
        let awaits_reply = self.start == StreamStart::TaskOrReply;
        match event {
            Ok((_, StreamResponse::Task(_))) if awaits_reply => {
                self.start = StreamStart::Update;
                match timeout(REPLY_WAIT, self.read()).await {
                    Ok(Some(reply @ Ok((_, StreamResponse::Message(_))))) => return Some(reply),
                    Ok(Some(next)) => self.next = NextEvent::Read(Box::new(next)),
                    Ok(None) => self.next = NextEvent::Absent,
                    Err(_elapsed) => {}
                }
                Some(event)
            }
            // The client has the task, so the reply is the end of this task.
            Ok((number, StreamResponse::Message(reply))) if self.start == StreamStart::Update => {
                Some(Ok((number, to_wire::reply_as_status(reply, &self.task))))
            }
            event => {
                self.start = StreamStart::Update;
                Some(event)
            }
        }
    }

    /// Reads the next event; `None` at the end of the execution.
    ///
    /// # Cancel safety
    /// Cancel safe after the snapshot.
    async fn read(&mut self) -> Option<NumberedEvent> {
        loop {
            return Some(match self.subscription.next().await? {
                Ok(LiveItem::Piece(piece)) => Ok((None, to_wire::piece(&piece, &self.task))),
                Ok(LiveItem::Durable(SubscriptionItem::Snapshot(version, snapshot))) => {
                    let bytes = to_wire::bytes(&snapshot, self.detail);
                    self.memory.ensure(bytes).await;
                    let event = match &snapshot.reply {
                        Some(reply) => StreamResponse::Message(to_wire::reply(reply, &snapshot)),
                        None => StreamResponse::Task(to_wire::task(&snapshot, self.detail)),
                    };
                    Ok((Some(version), event))
                }
                Ok(LiveItem::Durable(SubscriptionItem::Update(update))) => {
                    let Some(event) = to_wire::event(&update.record, &self.task) else {
                        continue;
                    };
                    Ok((Some(update.version), event))
                }
                Err(error) => Err(errors::of_read(&error)),
            });
        }
    }
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
