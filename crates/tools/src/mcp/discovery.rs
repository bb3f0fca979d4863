//! The first request of a connection, `server/discover`, which finds out the revision of the protocol.
//!
//! Servers since revision 2026-07-28 have no handshake, and answer this request. Earlier servers answer it with an error,
//! or in another way; a connection then continues with the handshake of the earlier revisions. The protocol library
//! continues with the handshake only after an error. So this module makes an error out of every other sign of an earlier
//! server: an answer of another kind, and silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use tokio::time::Instant;

use super::limits::DISCOVERY_WAIT;

/// State of the first request.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    state: DiscoveryState,
    is_open: DiscoveryOpen,
}

/// True while the first request has no answer. A connection that ends at such a moment may belong to an earlier server
/// that ends when it gets an unknown request.
#[derive(Debug, Clone, Default)]
pub(super) struct DiscoveryOpen(Arc<AtomicBool>);

#[derive(Debug, Default)]
enum DiscoveryState {
    #[default]
    Unsent,
    Open {
        id: RequestId,
        until: Instant,
    },
    /// Allstop no longer waits for the answer.
    Silent {
        id: RequestId,
    },
    Answered,
}

impl DiscoveryOpen {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Discovery {
    pub(super) fn new(is_open: DiscoveryOpen) -> Self {
        Self {
            state: DiscoveryState::Unsent,
            is_open,
        }
    }

    /// Notes a message that is being sent.
    pub(super) fn sent(&mut self, message: &ClientJsonRpcMessage) {
        if let Some(id) = request_id(message) {
            self.is_open.0.store(true, Ordering::Release);
            self.state = DiscoveryState::Open {
                id: id.clone(),
                until: Instant::now() + DISCOVERY_WAIT,
            };
        }
    }

    /// Time until which the connection waits for the answer.
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.state {
            DiscoveryState::Open { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Ends the wait. Returns the error that replaces the answer.
    pub(super) fn expired(&mut self) -> Option<ServerJsonRpcMessage> {
        let DiscoveryState::Open { id, .. } = &self.state else {
            return None;
        };
        let id = id.clone();
        self.is_open.0.store(false, Ordering::Release);
        self.state = DiscoveryState::Silent { id: id.clone() };
        Some(no_discovery(id, "it did not answer server/discover"))
    }

    /// Checks a received message. `None` drops a late answer.
    pub(super) fn received(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> Option<ServerJsonRpcMessage> {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        match &self.state {
            DiscoveryState::Silent { id } if answered == Some(id) => return None,
            DiscoveryState::Open { id, .. } if answered == Some(id) => {}
            _ => return Some(message),
        }
        self.is_open.0.store(false, Ordering::Release);
        self.state = DiscoveryState::Answered;
        match message {
            JsonRpcMessage::Response(response)
                if !matches!(response.result, ServerResult::DiscoverResult(_)) =>
            {
                Some(no_discovery(
                    response.id,
                    "it answered server/discover with something else",
                ))
            }
            message => Some(message),
        }
    }
}

/// Id of the request, if this message is the first request of a connection.
pub(super) fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::DiscoverRequest(_)) =>
        {
            Some(&request.id)
        }
        _ => None,
    }
}

/// Answer of a server without this request.
pub(super) fn no_discovery(id: RequestId, why: &'static str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None);
    ServerJsonRpcMessage::error(error, Some(id))
}
