//! Requests of this side that wait for answers.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::{RpcError, RpcId};

type RpcResult = Result<Box<RawValue>, RpcError>;

/// Requests that were sent and are not answered yet. Clones share one table.
///
/// Ids are the integers from 1 and are never reused. An answer removes its request from the table, so each request gets
/// at most one answer.
#[derive(Clone)]
pub struct OutgoingRequests {
    table: Arc<Mutex<PendingTable>>,
    pending_max: usize,
}

struct PendingTable {
    last_id: u64,
    waiting: HashMap<RpcId, oneshot::Sender<RpcResult>>,
    is_closed: bool,
}

/// Reason why a request can't be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BeginRequestError {
    /// The maximum number of requests already wait for an answer.
    #[error("{pending_max} requests already wait for an answer")]
    TooMany {
        /// The limit, in requests.
        pending_max: usize,
    },
    /// The table was closed.
    #[error("the connection is closed")]
    Closed,
}

/// Reason why a request has no result.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RpcFailure {
    /// The other side answered with an error.
    #[error(transparent)]
    Rpc(RpcError),
    /// The table was closed, or its last handle was dropped, before an answer arrived.
    #[error("the connection closed before the answer arrived")]
    Closed,
}

/// Destination of an answer that was passed to [`OutgoingRequests::complete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerDelivery {
    /// The answer went to the waiting request.
    Delivered,
    /// No request waits under this id: the request was never sent, is already answered, or was withdrawn, or ended
    /// because the table was closed.
    Unknown,
}

impl OutgoingRequests {
    /// Creates a table for at most `pending_max` requests at a time.
    pub fn new(pending_max: usize) -> Self {
        let table = PendingTable {
            last_id: 0,
            waiting: HashMap::new(),
            is_closed: false,
        };
        Self {
            table: Arc::new(Mutex::new(table)),
            pending_max,
        }
    }

    /// Registers a request. Afterwards, send the request with the returned id. If the request can't be sent, drop the
    /// returned future.
    ///
    /// # Errors
    ///
    /// If too many requests are pending, or the table is closed. In that case no request is registered.
    pub fn begin(&self) -> Result<(RpcId, PendingResponse), BeginRequestError> {
        let mut table = self.table.lock();
        if table.is_closed {
            return Err(BeginRequestError::Closed);
        }
        if table.waiting.len() >= self.pending_max {
            return Err(BeginRequestError::TooMany {
                pending_max: self.pending_max,
            });
        }
        table.last_id += 1;
        let id = RpcId::from(table.last_id);
        let (tx, rx) = oneshot::channel();
        table.waiting.insert(id.clone(), tx);
        let answer = PendingResponse {
            id: id.clone(),
            rx,
            table: Arc::downgrade(&self.table),
        };
        Ok((id, answer))
    }

    /// Passes an answer to the request that waits for it.
    pub fn complete(&self, id: &RpcId, result: Result<Box<RawValue>, RpcError>) -> AnswerDelivery {
        // The lock is released at the end of this statement. `send` below wakes the waiter, which may then need the
        // lock.
        let waiting = self.table.lock().waiting.remove(id);
        match waiting.map(|tx| tx.send(result)) {
            Some(Ok(())) => AnswerDelivery::Delivered,
            // `send` fails if the waiter is being dropped at this moment.
            Some(Err(_)) | None => AnswerDelivery::Unknown,
        }
    }

    /// Ends all waiting requests with [`RpcFailure::Closed`], and refuses new ones. A second call changes nothing.
    pub fn close(&self) {
        let mut table = self.table.lock();
        table.is_closed = true;
        let waiting = mem::take(&mut table.waiting);
        drop(table);
        // Dropping a sender wakes its waiter, which may then need the lock. So the senders are dropped after its
        // release.
        drop(waiting);
    }

    /// Number of requests that wait for an answer.
    pub fn pending_len(&self) -> usize {
        self.table.lock().waiting.len()
    }
}

impl fmt::Debug for OutgoingRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequests")
            .field("pending_len", &self.pending_len())
            .field("pending_max", &self.pending_max)
            .finish_non_exhaustive()
    }
}

/// Future of the answer to one request.
///
/// # Cancel safety
///
/// A caller can stop polling the future and poll it again later. Dropping the future withdraws the request: its slot is
/// free at once, and a later answer is [`AnswerDelivery::Unknown`]. The other side is not informed.
///
/// # Panics
///
/// If the future is polled again after it has returned the answer.
#[derive(Debug)]
#[must_use = "dropping it withdraws the request"]
pub struct PendingResponse {
    id: RpcId,
    rx: oneshot::Receiver<RpcResult>,
    /// Weak, so that waiting requests end when the last handle of the table is dropped.
    table: Weak<Mutex<PendingTable>>,
}

impl Future for PendingResponse {
    type Output = Result<Box<RawValue>, RpcFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.rx)
            .poll(cx)
            .map(|received| match received {
                Ok(answer) => answer.map_err(RpcFailure::Rpc),
                Err(_) => Err(RpcFailure::Closed),
            })
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            // The lock is released at the end of this statement, so the sender is dropped without the lock.
            let withdrawn = table.lock().waiting.remove(&self.id);
            drop(withdrawn);
        }
    }
}

#[cfg(test)]
#[path = "outgoing_tests.rs"]
mod tests;
