//! Cancellation of a call to an MCP server. A cancellation is sent at most once, and after the request of the call. If the
//! server continues the call as a task, `tasks/cancel` cancels the task.
//!
//! Invariants:
//! 1. `notifications/cancelled` is sent at most once per request, and never for a request that was answered or never
//!    sent. `tasks/cancel` is sent at most once per task.
//!    Over HTTP, the cancellation that closes a response is not sent.
//! 2. A request for a cancellation never waits, because stops and destructors request cancellations. Closing the
//!    connection waits until the cancellation is written.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    CustomNotification, JsonRpcMessage, RequestId,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient};
use tokio::task::coop::unconstrained;

use super::mcp_task::McpTask;

/// Effect of a cancellation on the HTTP response of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelForm {
    /// The protocol library sends the cancellation and closes the response, or closes it in place of a cancellation (from
    /// revision 2026-07-28 on). Pipes have no response to close.
    ClosesResponse,
    /// The response stays open, so that the server can answer the cancelled request. [`CallCancellation::close_response`]
    /// closes it.
    KeepsResponse,
}

/// Marks a cancellation that only closes the response, because the server already has one.
#[derive(Debug, Clone)]
struct OnlyClosesResponse;

/// True for a cancellation that is not sent to the server.
pub(super) fn only_closes_response(message: &ClientJsonRpcMessage) -> bool {
    match message {
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => {
                cancelled.extensions.get::<OnlyClosesResponse>().is_some()
            }
            _ => false,
        },
        _ => false,
    }
}

#[derive(Debug)]
pub(super) struct CallCancellation {
    peer: Peer<RoleClient>,
    form: CancelForm,
    unsent: Arc<UnsentCancellations>,
    state: Mutex<CancelState>,
}

/// Cancellations of a connection that are not written yet.
#[derive(Default)]
pub(super) struct UnsentCancellations(Mutex<Vec<BoxFuture<'static, ()>>>);

impl UnsentCancellations {
    /// Sends a cancellation, and keeps it until it is written.
    pub(super) fn add(&self, mut sending: BoxFuture<'static, ()>) {
        let mut unsent = self.0.lock();
        unsent.retain_mut(|other| unconstrained(other).now_or_never().is_none());
        // One poll puts the notification into the queue of the connection, after its request.
        if unconstrained(&mut sending).now_or_never().is_none() {
            unsent.push(sending);
        }
    }

    /// Waits until each cancellation is written, or cannot be written any more.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection still writes the remaining cancellations.
    pub(super) async fn written(&self) {
        let unsent = std::mem::take(&mut *self.0.lock());
        drop(join_all(unsent).await);
    }
}

impl fmt::Debug for UnsentCancellations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnsentCancellations")
            .field(&self.0.lock().len())
            .finish()
    }
}

#[derive(Debug)]
enum CancelState {
    Unsent,
    Sent(RequestId),
    /// The server continues the call as this task.
    Continued(McpTask),
    Cancelled,
    Answered,
}

/// Reason why a request was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendRefusal {
    /// The request was cancelled before it was sent.
    Cancelled,
    /// The connection accepts no requests.
    Refused,
}

impl CallCancellation {
    pub(super) fn new(
        peer: Peer<RoleClient>,
        form: CancelForm,
        unsent: Arc<UnsentCancellations>,
    ) -> Self {
        Self {
            peer,
            form,
            unsent,
            state: Mutex::new(CancelState::Unsent),
        }
    }

    /// Sends the request, unless it was cancelled before.
    pub(super) fn send(
        &self,
        request: rmcp::model::ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<RequestHandle<RoleClient>, SendRefusal> {
        let mut state = self.state.lock();
        if !matches!(*state, CancelState::Unsent) {
            return Err(SendRefusal::Cancelled);
        }
        // One poll is enough, because it only puts the request into a queue. If the queue is full, the request is
        // refused.
        let sending = self.peer.send_request_with_option(request, options);
        let handle = unconstrained(sending).now_or_never();
        let handle = handle.and_then(Result::ok).ok_or(SendRefusal::Refused)?;
        *state = CancelState::Sent(handle.id.clone());
        Ok(handle)
    }

    /// Sends the cancellation, unless the server has answered. Only the first call of this method sends it.
    pub(super) fn request(&self, reason: &str) {
        let mut state = self.state.lock();
        if matches!(*state, CancelState::Cancelled | CancelState::Answered) {
            return;
        }
        let before = std::mem::replace(&mut *state, CancelState::Cancelled);
        drop(state);
        match before {
            CancelState::Sent(id) => self.cancel_request(id, reason),
            CancelState::Continued(task) => self.cancel_task(task),
            CancelState::Unsent | CancelState::Cancelled | CancelState::Answered => {}
        }
    }

    fn cancel_request(&self, id: RequestId, reason: &str) {
        let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
        self.notify(match self.form {
            CancelForm::ClosesResponse => CancelledNotification::new(params).into(),
            // The library sends this notification as any other one, and leaves the response open.
            CancelForm::KeepsResponse => {
                let params = serde_json::to_value(params).ok();
                CustomNotification::new("notifications/cancelled", params).into()
            }
        });
    }

    /// Closes the response of a cancelled request whose answer is no longer awaited.
    pub(super) fn close_response(&self, id: &RequestId) {
        if self.form == CancelForm::KeepsResponse {
            let params = CancelledNotificationParam::new(Some(id.clone()), None);
            let mut notification = CancelledNotification::new(params);
            notification.extensions.insert(OnlyClosesResponse);
            self.notify(notification.into());
        }
    }

    fn notify(&self, notification: ClientNotification) {
        let peer = self.peer.clone();
        let sending = async move {
            // Fails only if the connection is gone.
            drop(peer.send_notification(notification).await);
        };
        self.unsent.add(sending.boxed());
    }

    fn cancel_task(&self, task: McpTask) {
        let peer = self.peer.clone();
        self.unsent
            .add(async move { task.cancel(&peer).await }.boxed());
    }

    /// Records that the server continues the call as a task. If the call was cancelled before, cancels the task.
    pub(super) fn continued_as(&self, task: &McpTask) {
        let mut state = self.state.lock();
        if matches!(*state, CancelState::Cancelled) {
            drop(state);
            self.cancel_task(task.clone());
        } else {
            *state = CancelState::Continued(task.clone());
        }
    }

    /// Records that the server has answered. After that, no cancellation is sent.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock();
        if !matches!(*state, CancelState::Cancelled) {
            *state = CancelState::Answered;
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        matches!(*self.state.lock(), CancelState::Cancelled)
    }
}
