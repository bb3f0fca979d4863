//! A connected client (a program that uses a Copilot SDK): notifications and requests to the client.

use allstop_jsonrpc::{
    BeginRequestError, OutgoingRequests, RpcFailure, encode_notification, encode_request,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::output::{FrameQueue, QueueClosed};

/// Maximum number of requests that wait for an answer of the client. This is more than the concurrent hooks and
/// questions of all sessions of the client.
const REQUESTS_MAX: usize = 4096;

/// Number of a connection, unique in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(pub u64);

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) output: FrameQueue,
    pub(crate) outgoing: OutgoingRequests,
}

/// Failure of a request to the client.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ClientRequestError {
    #[error("the client has disconnected")]
    Gone,
    #[error("the client does not answer: {0} requests wait")]
    TooMany(usize),
    #[error("the client refused: {0}")]
    Refused(String),
    #[error("the client sent an invalid answer: {0}")]
    Answer(String),
}

impl Client {
    pub(crate) fn new(id: ClientId, output: FrameQueue) -> Self {
        Self {
            id,
            output,
            outgoing: OutgoingRequests::new(REQUESTS_MAX),
        }
    }

    /// Sends a notification.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has sent nothing.
    pub(crate) async fn notify(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(), QueueClosed> {
        match encode_notification(method, params) {
            Ok(body) => self.output.message(&body).await,
            Err(error) => {
                tracing::error!(%error, method, "a notification is not JSON");
                Ok(())
            }
        }
    }

    /// Sends a request, and waits for its answer without a time limit.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; a late answer has no effect.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, ClientRequestError> {
        let (id, response) = self.outgoing.begin().map_err(|error| match error {
            BeginRequestError::TooMany { pending_max } => ClientRequestError::TooMany(pending_max),
            BeginRequestError::Closed => ClientRequestError::Gone,
        })?;
        let body = encode_request(&id, method, params)
            .map_err(|error| ClientRequestError::Answer(error.to_string()))?;
        self.output
            .message(&body)
            .await
            .map_err(|QueueClosed| ClientRequestError::Gone)?;
        let answer = response.await.map_err(|failure| match failure {
            RpcFailure::Rpc(error) => ClientRequestError::Refused(error.message),
            RpcFailure::Closed => ClientRequestError::Gone,
        })?;
        serde_json::from_str(answer.get())
            .map_err(|error| ClientRequestError::Answer(error.to_string()))
    }

    /// Sends an event of a session.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has sent nothing.
    pub(crate) async fn event(
        &self,
        session: &str,
        event: &impl Serialize,
    ) -> Result<(), QueueClosed> {
        let params = json!({ "sessionId": session, "event": event });
        self.notify("session.event", &params).await
    }
}
