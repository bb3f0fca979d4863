//! Requests of the other side that this side must answer.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::encode::{encode_error_response, encode_response};
use crate::frame::encode_frame;
use crate::{RpcError, RpcId};

/// Function that receives the answers (the sink). The sink puts an answer into the queue of the connection's writer,
/// and must neither block nor panic.
///
/// The queue needs no separate limit: at most `pending_max` answers exist at a time.
pub type AnswerSink = Arc<dyn Fn(QueuedAnswer) + Send + Sync>;

/// Requests that were accepted and whose answers are not written yet. Clones share one table.
///
/// Each accepted request gets exactly one answer, even if its [`Responder`] is dropped. A request keeps its id and its
/// slot in the table until the answer is written. So if a client reads no answers, its next requests are soon refused.
#[derive(Clone)]
pub struct IncomingRequests {
    slots: Arc<RequestSlots>,
    sink: AnswerSink,
}

struct RequestSlots {
    occupied: Mutex<HashSet<RpcId>>,
    pending_max: usize,
}

impl IncomingRequests {
    /// Creates a table for at most `pending_max` requests at a time. The answers to these requests are passed to
    /// `sink`.
    pub fn new(pending_max: usize, sink: AnswerSink) -> Self {
        let slots = RequestSlots {
            occupied: Mutex::new(HashSet::new()),
            pending_max,
        };
        Self {
            slots: Arc::new(slots),
            sink,
        }
    }

    /// Accepts a request, and returns its responder.
    ///
    /// # Errors
    ///
    /// Returns the error to send as the answer. Either a request with this id is in flight
    /// ([`RpcError::INVALID_REQUEST`]), or `pending_max` requests are in flight ([`RpcError::OVERLOADED`]). These error
    /// answers do not count towards the limit, so write each error answer before you read the next message.
    pub fn accept(&self, id: RpcId) -> Result<Responder, RpcError> {
        let pending_max = self.slots.pending_max;
        let mut occupied = self.slots.occupied.lock();
        if occupied.contains(&id) {
            let message = "a request with this id is in flight";
            return Err(RpcError::invalid_request(message));
        }
        if occupied.len() >= pending_max {
            let message = format!("too many requests in flight: the limit is {pending_max}");
            return Err(RpcError::overloaded(message));
        }
        occupied.insert(id.clone());
        drop(occupied);
        let slot = RequestSlot {
            id,
            slots: Arc::clone(&self.slots),
        };
        Ok(Responder {
            slot: Some(slot),
            sink: Arc::clone(&self.sink),
        })
    }

    /// Number of requests whose answers are not written yet.
    pub fn in_flight_len(&self) -> usize {
        self.slots.occupied.lock().len()
    }
}

impl fmt::Debug for IncomingRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRequests")
            .field("in_flight_len", &self.in_flight_len())
            .field("pending_max", &self.slots.pending_max)
            .finish_non_exhaustive()
    }
}

/// Slot of one request in the table; dropping it frees the slot.
struct RequestSlot {
    id: RpcId,
    /// Does not include the sink. The sink may own the queue that holds this slot, which would make a reference cycle.
    slots: Arc<RequestSlots>,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.slots.occupied.lock().remove(&self.id);
    }
}

/// Obligation to answer one request. If the responder is dropped without an answer, for example by a panic, the request
/// is answered with an internal error.
#[must_use = "dropping it answers the request with an internal error"]
pub struct Responder {
    /// `None` once the request is answered.
    slot: Option<RequestSlot>,
    sink: AnswerSink,
}

impl Responder {
    /// Answers the request. If the result cannot be written as JSON, the answer is an internal error.
    pub fn respond(mut self, result: Result<impl Serialize, RpcError>) {
        self.answer(|id| match result {
            Ok(result) => encode_response(id, &result).unwrap_or_else(|_| {
                let error = RpcError::internal_error("the result cannot be written as JSON");
                encode_error_response(Some(id), &error)
            }),
            Err(error) => encode_error_response(Some(id), &error),
        });
    }

    /// Sends the answer, unless the request already has one.
    fn answer(&mut self, body_for: impl FnOnce(&RpcId) -> Vec<u8>) {
        let Some(slot) = &self.slot else { return };
        // If this line panics, the slot is still set, so dropping the responder sends an answer.
        let frame = encode_frame(&body_for(&slot.id));
        if let Some(slot) = self.slot.take() {
            (self.sink)(QueuedAnswer { frame, slot });
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.answer(|id| {
            let error = RpcError::internal_error("the request was dropped without an answer");
            encode_error_response(Some(id), &error)
        });
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.slot.as_ref().map(|slot| &slot.id);
        f.debug_struct("Responder")
            .field("id", &id)
            .finish_non_exhaustive()
    }
}

/// Answer that is ready to be written. Drop this value after the write, to free the id and the slot of the request.
#[must_use = "the request is answered only when the frame is written"]
pub struct QueuedAnswer {
    frame: Vec<u8>,
    slot: RequestSlot,
}

impl QueuedAnswer {
    /// The whole frame, header and body.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Id of the answered request.
    pub fn id(&self) -> &RpcId {
        &self.slot.id
    }
}

impl fmt::Debug for QueuedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedAnswer")
            .field("id", &self.slot.id)
            .field("frame_len", &self.frame.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
