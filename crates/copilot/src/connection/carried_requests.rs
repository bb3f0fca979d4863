//! Requests to models that one client carries (`llmInference`).
//!
//! Invariants:
//! 1. A request counts as running until the client has sent the end of its response, also after the request was cancelled.
//! 2. A client that does not wait for the answers to its parts of a response blocks only its own request.

use std::collections::HashMap;

use allstop_model::OutsideWork;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::mpsc;

/// Maximum number of carried requests of a client, with the cancelled requests whose end the client has not sent.
const CARRIED_MAX: usize = 4096;

/// Maximum number of unread parts of one response. The SDKs send the next part after the answer to the part before it.
const PARTS_MAX: usize = 64;

/// A part of a response.
#[derive(Debug, PartialEq)]
pub(crate) enum ResponsePart {
    Head {
        status: u16,
        headers: Vec<(String, String)>,
    },
    Piece(Vec<u8>),
    Failed(String),
}

/// Parameters of `llmInference.httpResponseStart`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResponseStartParams {
    pub(crate) request_id: String,
    status: u16,
    #[serde(default)]
    headers: HashMap<String, Vec<String>>,
}

/// Parameters of `llmInference.httpResponseChunk`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResponseChunkParams {
    pub(crate) request_id: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    binary: bool,
    #[serde(default)]
    end: bool,
    error: Option<ResponseErrorParams>,
}

#[derive(Deserialize)]
struct ResponseErrorParams {
    message: String,
}

/// Carried requests, by their ids.
#[derive(Debug, Default)]
pub(crate) struct CarriedRequests {
    table: Mutex<RequestTable>,
}

#[derive(Debug, Default)]
struct RequestTable {
    requests: HashMap<String, OpenRequest>,
    is_closed: bool,
}

/// A request without the end of its response.
#[derive(Debug)]
struct OpenRequest {
    /// Receiver of the response; `None` after the request was cancelled.
    parts: Option<mpsc::Sender<ResponsePart>>,
    work: OutsideWork,
}

/// Reason why the client carries no further request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotCarried {
    #[error("the client has disconnected")]
    Closed,
    #[error("the client has not ended {CARRIED_MAX} requests")]
    TooMany,
}

impl CarriedRequests {
    /// Adds a request. The call of the request counts as running until the client has ended the response.
    pub(crate) fn add(
        &self,
        id: &str,
        work: OutsideWork,
    ) -> Result<mpsc::Receiver<ResponsePart>, NotCarried> {
        let mut table = self.table.lock();
        if table.is_closed {
            return Err(NotCarried::Closed);
        }
        if table.requests.len() >= CARRIED_MAX {
            return Err(NotCarried::TooMany);
        }
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let request = OpenRequest {
            parts: Some(parts),
            work,
        };
        table.requests.insert(id.to_owned(), request);
        Ok(received)
    }

    /// Removes a request that was not sent.
    pub(crate) fn remove(&self, id: &str) {
        self.table.lock().requests.remove(id);
    }

    /// Records that a request was cancelled. Returns false if its response has ended, or the client has disconnected.
    pub(crate) fn withdraw(&self, id: &str) -> bool {
        let mut table = self.table.lock();
        let request = table.requests.get_mut(id);
        request.map(|request| request.parts = None).is_some()
    }

    /// Passes the beginning of a response to its request. Returns false if the request is unknown.
    pub(crate) fn start(&self, params: ResponseStartParams) -> bool {
        let headers = params.headers.into_iter();
        let headers = headers.flat_map(|(name, values)| {
            let named = move |value| (name.clone(), value);
            values.into_iter().map(named)
        });
        let head = ResponsePart::Head {
            status: params.status,
            headers: headers.collect(),
        };
        self.pass(&params.request_id, Some(head), false)
    }

    /// Passes a piece of a response, or its failure. Returns false if the request is unknown.
    pub(crate) fn chunk(&self, params: ResponseChunkParams) -> bool {
        let part = match (params.error, params.binary) {
            (Some(error), _) => Some(ResponsePart::Failed(error.message)),
            (None, false) => Some(ResponsePart::Piece(params.data.into_bytes())),
            (None, true) => Some(match BASE64_STANDARD.decode(&params.data) {
                Ok(bytes) => ResponsePart::Piece(bytes),
                Err(error) => ResponsePart::Failed(format!("invalid base64: {error}")),
            }),
        };
        let is_end = params.end || matches!(part, Some(ResponsePart::Failed(_)));
        let part = part.filter(|part| *part != ResponsePart::Piece(Vec::new()));
        self.pass(&params.request_id, part, is_end)
    }

    fn pass(&self, id: &str, part: Option<ResponsePart>, is_end: bool) -> bool {
        let mut table = self.table.lock();
        let Some(request) = table.requests.get_mut(id) else {
            return false;
        };
        if let (Some(parts), Some(part)) = (&request.parts, part)
            && parts.try_send(part).is_err()
        {
            // The client sends faster than the call reads, and does not wait. The call fails, because its stream ends.
            request.parts = None;
        }
        if is_end {
            table.requests.remove(id);
        }
        true
    }

    /// Ends all requests, because the client has disconnected. The client can no longer report their ends.
    pub(crate) fn close(&self) {
        let requests = {
            let mut table = self.table.lock();
            table.is_closed = true;
            std::mem::take(&mut table.requests)
        };
        for request in requests.into_values() {
            request.work.lose();
        }
    }
}
