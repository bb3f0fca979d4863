//! A connected client (a program that uses a Copilot SDK): notifications and requests to the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allstop_jsonrpc::{
    BeginRequestError, OutgoingRequests, PendingResponse, RpcFailure, encode_notification,
    encode_request,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::carried_requests::CarriedRequests;
use super::output::{FrameQueue, QueueClosed};
use crate::secret_filter::SecretFilter;

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
    /// Requests to models that the client carries.
    pub(crate) carried: CarriedRequests,
    carries_requests: AtomicBool,
    /// Folder in which the client stores the files of its sessions; unset if the server stores them.
    files_folder: OnceLock<Arc<str>>,
    /// Values that the client does not get in events and requests of sessions.
    pub(crate) secrets: Arc<SecretFilter>,
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
    pub(crate) fn new(id: ClientId, output: FrameQueue, secrets: Arc<SecretFilter>) -> Self {
        Self {
            id,
            output,
            outgoing: OutgoingRequests::new(REQUESTS_MAX),
            carried: CarriedRequests::default(),
            carries_requests: AtomicBool::new(false),
            files_folder: OnceLock::new(),
            secrets,
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

    /// True if the client carries requests to models.
    pub(crate) fn carries_requests(&self) -> bool {
        self.carries_requests.load(Ordering::SeqCst)
    }

    /// Records that the client carries requests to models.
    pub(crate) fn set_carries_requests(&self) {
        self.carries_requests.store(true, Ordering::SeqCst);
    }

    /// Folder in which the client stores the files of its sessions; `None` if the server stores them.
    pub(crate) fn files_folder(&self) -> Option<Arc<str>> {
        self.files_folder.get().cloned()
    }

    /// Records that the client stores the files of its sessions. Returns false if the client has already named a folder.
    pub(crate) fn set_files_folder(&self, folder: Arc<str>) -> bool {
        self.files_folder.set(folder).is_ok()
    }

    fn encoded(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(Vec<u8>, PendingResponse), ClientRequestError> {
        let (id, response) = self.outgoing.begin().map_err(|error| match error {
            BeginRequestError::TooMany { pending_max } => ClientRequestError::TooMany(pending_max),
            BeginRequestError::Closed => ClientRequestError::Gone,
        })?;
        let body = encode_request(&id, method, params)
            .map_err(|error| ClientRequestError::Answer(error.to_string()))?;
        Ok((body, response))
    }

    /// Sends a short request at once, without an answer. The caller limits the number of such requests.
    pub(crate) fn send_now(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(), ClientRequestError> {
        let (body, _unread) = self.encoded(method, params)?;
        let sent = self.output.refusal(&body);
        sent.map_err(|QueueClosed| ClientRequestError::Gone)
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
        self.request_noting(method, params, || ()).await
    }

    /// Like [`request`](Self::request), but calls `on_sent` when the request is queued for the client.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; a late answer has no effect.
    pub(crate) async fn request_noting<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        on_sent: impl FnOnce(),
    ) -> Result<T, ClientRequestError> {
        let (body, response) = self.encoded(method, params)?;
        self.output
            .message(&body)
            .await
            .map_err(|QueueClosed| ClientRequestError::Gone)?;
        on_sent();
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
        let event = self.secrets.redact(json!(event));
        let params = json!({ "sessionId": session, "event": event });
        self.notify("session.event", &params).await
    }
}
