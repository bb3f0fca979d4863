//! The requests of one connection on pipes that have no response yet.
//!
//! Invariants:
//! 1. A request enters the table before the protocol library receives it, so a cancellation that directly follows its
//!    request finds it. A cancelled call of `exec` never begins.
//! 2. The id of a request in the table belongs to this request alone. A second request with this id is refused.
//! 3. A request leaves the table with its response, or with a cancellation that the library handles, because the library
//!    then drops the response.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{CancelledNotification, ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RequestContext, TxJsonRpcMessage};
use tokio_util::sync::CancellationToken;

use crate::catalog;
use crate::confirmed_cancel::{ConfirmedCall, wants_confirmation};

/// Requests without a response, by their ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenRequests(Arc<Mutex<HashMap<RequestId, PipeRequest>>>);

#[derive(Debug)]
enum PipeRequest {
    /// A call of `exec` that has not begun. The token is cancelled with the call.
    Waiting(CancellationToken),
    /// A call of `exec` whose cancellation is confirmed with a response.
    Confirmed(CancellationToken),
    /// A cancelled call that has not begun. Its client wants no response.
    Silent,
    /// The library handles a cancellation of this request.
    Other,
}

impl OpenRequests {
    /// Adds a request. False if another request with this id has no response yet.
    pub(crate) fn enter(&self, id: &RequestId, request: &ClientRequest) -> bool {
        let is_exec = matches!(request, ClientRequest::CallToolRequest(call)
            if call.params.name == catalog::EXEC);
        let mut requests = self.0.lock();
        let Entry::Vacant(entry) = requests.entry(id.clone()) else {
            return false;
        };
        entry.insert(if is_exec {
            PipeRequest::Waiting(CancellationToken::new())
        } else {
            PipeRequest::Other
        });
        true
    }

    /// Begins a call of `exec`. `None` if its cancellation is not confirmed.
    pub(crate) fn begin(&self, context: &RequestContext<RoleServer>) -> Option<ConfirmedCall> {
        let mut requests = self.0.lock();
        let request = requests.get_mut(&context.id)?;
        let PipeRequest::Waiting(token) = request else {
            return None;
        };
        let token = token.clone();
        *request = if wants_confirmation(context) {
            PipeRequest::Confirmed(token.clone())
        } else if token.is_cancelled() {
            PipeRequest::Silent
        } else {
            PipeRequest::Other
        };
        let is_plain = matches!(request, PipeRequest::Other);
        (!is_plain).then(|| ConfirmedCall::new(token))
    }

    /// Cancels a request. False if the library must handle the cancellation.
    pub(crate) fn cancel(&self, cancelled: &CancelledNotification) -> bool {
        let Some(id) = &cancelled.params.request_id else {
            return false;
        };
        let mut requests = self.0.lock();
        match requests.get(id) {
            Some(PipeRequest::Waiting(token) | PipeRequest::Confirmed(token)) => {
                token.cancel();
                true
            }
            Some(PipeRequest::Silent) => true,
            Some(PipeRequest::Other) => {
                drop(requests.remove(id));
                false
            }
            None => false,
        }
    }

    /// Removes the request of a response. False if the client wants no response.
    pub(crate) fn leave(&self, message: &TxJsonRpcMessage<RoleServer>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let left = id.and_then(|id| self.0.lock().remove(id));
        !matches!(left, Some(PipeRequest::Silent))
    }
}
