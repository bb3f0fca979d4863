//! Interceptor that receives every message of a connection to an MCP server before the protocol library receives the
//! message.
//!
//! The interceptor takes the answers to calls by id, so that an answer after a cancellation is still delivered. The
//! interceptor also shows progress in order, and drops unneeded messages, so that many such messages cost only the time
//! to parse them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerNotification, ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::call_answer::CallAnswer;
use super::calls::OpenCalls;
use super::connection_loss::ConnectionLoss;
use super::deep_answer::is_replacement;
use super::discovery::{Discovery, DiscoveryOpen};
use super::limits::REQUESTS_OPEN_MAX;

/// Transport that intercepts the messages of a connection.
pub(super) struct MessageInterceptor<T> {
    inner: T,
    sinks: ConnectionSinks,
    /// Requests of the server that are not answered yet.
    requests_open: Arc<AtomicUsize>,
    order: Option<SendOrder>,
    discovery: Discovery,
}

/// Receivers of the server's messages.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionSinks {
    pub(super) calls: Arc<OpenCalls>,
    pub(super) loss: ConnectionLoss,
    /// Notified when the list of the server's tools has changed.
    pub(super) list_changed: Arc<Notify>,
    pub(super) discovery_open: DiscoveryOpen,
}

/// Keeps sent messages in order: a cancellation never overtakes its request.
#[derive(Default)]
struct SendOrder {
    before: Option<oneshot::Receiver<()>>,
}

impl<T> MessageInterceptor<T> {
    /// Wraps a transport that does not keep messages in order. The interceptor then keeps them in order.
    pub(super) fn in_order(inner: T, sinks: ConnectionSinks) -> Self {
        Self {
            order: Some(SendOrder::default()),
            ..Self::new(inner, sinks)
        }
    }

    /// Wraps a transport that sends messages concurrently, but sends each cancellation after its request.
    pub(super) fn new(inner: T, sinks: ConnectionSinks) -> Self {
        Self {
            discovery: Discovery::new(sinks.discovery_open.clone()),
            inner,
            sinks,
            requests_open: Arc::default(),
            order: None,
        }
    }

    /// Handles a message, and returns the message for the protocol library, if any.
    fn intercept(&self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Response(mut response) => {
                if self.sinks.calls.is_open(&response.id) {
                    let empty = ServerResult::empty(());
                    let result = std::mem::replace(&mut response.result, empty);
                    self.answered(&response.id, CallAnswer::Result(Box::new(result)));
                }
                Some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(failed) => match failed.id {
                Some(id) if self.sinks.calls.is_open(&id) => {
                    let answer = self.failure(failed.error);
                    self.answered(&id, answer);
                    let empty = ServerResult::empty(());
                    Some(ServerJsonRpcMessage::response(empty, id))
                }
                _ => Some(JsonRpcMessage::Error(failed)),
            },
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.sinks.calls.progress(&progress.params);
                    None
                }
                ServerNotification::ToolListChangedNotification(_) => {
                    self.sinks.list_changed.notify_one();
                    None
                }
                // The protocol library waits for this notification when it subscribes to changes.
                ServerNotification::SubscriptionsAcknowledgedNotification(_) => {
                    Some(JsonRpcMessage::Notification(notification))
                }
                _ => None,
            },
            JsonRpcMessage::Request(request) => {
                if self.requests_open.fetch_add(1, Ordering::AcqRel) >= REQUESTS_OPEN_MAX {
                    self.sinks.loss.by_us("it sent too many requests at once");
                }
                Some(JsonRpcMessage::Request(request))
            }
        }
    }

    fn failure(&self, error: ErrorData) -> CallAnswer {
        if is_replacement(&error) {
            return CallAnswer::Unreadable(error.message);
        }
        if !is_cut(&error) {
            return CallAnswer::Error(error);
        }
        CallAnswer::Cut(match self.sinks.loss.reason() {
            Some(loss) => Arc::clone(&loss.why),
            None => "it closed the response before an answer".into(),
        })
    }

    fn answered(&self, id: &RequestId, answer: CallAnswer) {
        // The delivery fails if the call was removed in the meantime. The answer is then dropped.
        drop(self.sinks.calls.answer(id, answer));
    }
}

/// True if the protocol library wrote this error in place of a missing answer.
fn is_cut(error: &ErrorData) -> bool {
    let data = error.data.as_ref();
    data.is_some_and(|data| {
        data.get("io.modelcontextprotocol/transportClosed")
            .is_some()
    })
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for MessageInterceptor<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.discovery.sent(&item);
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
                // The sender never sends a value. The wait ends when the sender is dropped, which happens after the
                // previous message was sent.
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
            let received = match self.discovery.until() {
                None => self.inner.receive().await,
                Some(until) => match timeout_at(until, self.inner.receive()).await {
                    Ok(received) => received,
                    Err(_elapsed) => return self.discovery.expired(),
                },
            };
            let Some(message) = received else {
                self.sinks.loss.by_server("it closed the connection");
                return None;
            };
            let message = self.discovery.received(message);
            if let Some(message) = message.and_then(|message| self.intercept(message)) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
