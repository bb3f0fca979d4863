//! Sees every message of a connection before the protocol's own bookkeeping does.
//!
//! Answers to calls are taken here, by id, so that one that comes after a cancellation is still seen, and progress is
//! shown in its order. What nobody needs goes no further: a flood of it costs a parse and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::sync::{Notify, oneshot};

use super::calls::{Answer, Calls};
use super::connection::Lost;
use super::limits::REQUESTS_OPEN_MAX;

/// The messages of a connection.
pub(super) struct Tap<T> {
    inner: T,
    heard: Heard,
    /// Requests of the server that we have not answered.
    requests_open: Arc<AtomicUsize>,
    order: Option<Order>,
}

/// Who hears of what the server says.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    pub(super) calls: Arc<Calls>,
    pub(super) lost: Lost,
    /// The list of its tools has changed.
    pub(super) list_changed: Arc<Notify>,
}

/// Messages leave in the order in which they were given: a cancellation never overtakes its request.
#[derive(Default)]
struct Order {
    before: Option<oneshot::Receiver<()>>,
}

impl<T> Tap<T> {
    /// Over a transport that writes one message after the other.
    pub(super) fn in_order(inner: T, heard: Heard) -> Self {
        Self {
            order: Some(Order::default()),
            ..Self::new(inner, heard)
        }
    }

    /// Over a transport whose messages travel side by side, and which keeps cancellations behind their requests.
    pub(super) fn new(inner: T, heard: Heard) -> Self {
        Self {
            inner,
            heard,
            requests_open: Arc::default(),
            order: None,
        }
    }

    /// What goes on to the protocol's bookkeeping.
    fn look(&self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Response(mut response) => {
                if self.heard.calls.is_open(&response.id) {
                    let empty = ServerResult::empty(());
                    let result = std::mem::replace(&mut response.result, empty);
                    self.answered(&response.id, Answer::Result(Box::new(result)));
                }
                Some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(failed) => match failed.id {
                Some(id) if self.heard.calls.is_open(&id) => {
                    self.answered(&id, Answer::Error(failed.error));
                    let empty = ServerResult::empty(());
                    Some(ServerJsonRpcMessage::response(empty, id))
                }
                _ => Some(JsonRpcMessage::Error(failed)),
            },
            JsonRpcMessage::Notification(notification) => {
                match &notification.notification {
                    ServerNotification::ProgressNotification(progress) => {
                        self.heard.calls.progress(&progress.params);
                    }
                    ServerNotification::ToolListChangedNotification(_) => {
                        self.heard.list_changed.notify_one();
                    }
                    _ => {}
                }
                None
            }
            JsonRpcMessage::Request(request) => {
                if self.requests_open.fetch_add(1, Ordering::AcqRel) >= REQUESTS_OPEN_MAX {
                    self.heard.lost.given_up("it asks more than is answered");
                }
                Some(JsonRpcMessage::Request(request))
            }
        }
    }

    fn answered(&self, id: &RequestId, answer: Answer) {
        // Somebody took it meanwhile: then the answer is nobody's.
        drop(self.heard.calls.answer(id, answer));
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let is_answer = matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let requests_open = is_answer.then(|| Arc::clone(&self.requests_open));
        let sending = self.inner.send(item);
        let (done, after) = oneshot::channel::<()>();
        let before = self
            .order
            .as_mut()
            .and_then(|order| order.before.replace(after));
        async move {
            if let Some(before) = before {
                // It is dropped and never sent: both say that the one before has left.
                drop(before.await);
            }
            let sent = sending.await;
            drop(done);
            if let Some(open) = requests_open {
                open.fetch_sub(1, Ordering::AcqRel);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.heard.lost.by_itself("it closed the connection");
                return None;
            };
            if let Some(message) = self.look(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
