//! Memory for responses that are being built. A large task needs several times its size before its response is sent, and
//! many clients may ask for it at once. So a request first reserves memory, then reads the task, and returns the memory
//! when the body of its response is handed over. From then on, the connection counts the bytes (see
//! [`Places`](allstop_host::Places)).
//!
//! Invariants:
//! 1. A request has at most one reservation, and waits for another only after it has returned the first. So requests
//!    never wait for each other in a circle.
//! 2. The size of a task is known only after it was read. A request that has reserved too little drops the task, and
//!    reserves the known size before it reads the task again.
//! 3. No work of a stop waits for memory, only its answer.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use a2a_server::ServiceParams;
use allstop_host::{BudgetPermit, FairBudget};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use serde::Serialize;

use crate::access::principal_of;

/// Maximum size of the responses that are being built at the same time, as JSON in bytes. They need about five times as
/// much memory: the task, its parts as values of the protocol and of JSON, and the text. A user has at most half of it.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// First reservation for a task, in bytes. Few tasks are larger.
pub(crate) const TASK_BYTES: usize = 2 * 1024 * 1024;

/// First reservation for a page of tasks, in bytes: the size of the page, and the task that does not fit into it.
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Header with the number of the request. The access control also passes the principal in a header, because the library
/// passes only headers to an operation.
static RESPONSE_HEADER: HeaderName = HeaderName::from_static("x-allstop-response");

/// Memory of a server's responses.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    budget: FairBudget,
    /// The reservations of the requests in progress, by number.
    requests: Mutex<HashMap<u64, ResponseReservation>>,
    next: AtomicU64,
}

/// Memory that one request has reserved. Clones share it.
#[derive(Debug, Clone, Default)]
struct ResponseReservation(Arc<Mutex<Option<BudgetPermit>>>);

/// A request in progress. Its reservation is returned when this value is dropped.
#[derive(Debug)]
pub(crate) struct BuiltResponse {
    memory: Arc<ResponseMemory>,
    number: u64,
    reservation: ResponseReservation,
}

/// An operation's access to the reservation of its request.
#[derive(Debug, Clone)]
pub(crate) struct RequestMemory {
    budget: FairBudget,
    user: Arc<str>,
    reservation: ResponseReservation,
}

impl Default for ResponseMemory {
    fn default() -> Self {
        Self {
            budget: FairBudget::new(BYTES_MAX),
            requests: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }
}

impl ResponseMemory {
    /// Registers a request, before its operation runs.
    pub(crate) fn begin(self: &Arc<Self>, headers: &mut HeaderMap) -> BuiltResponse {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let reservation = ResponseReservation::default();
        self.requests.lock().insert(number, reservation.clone());
        // Replaces a number that the client has sent.
        headers.insert(&RESPONSE_HEADER, HeaderValue::from(number));
        BuiltResponse {
            memory: Arc::clone(self),
            number,
            reservation,
        }
    }

    /// The memory of the request with these parameters.
    pub(crate) fn of(&self, params: &ServiceParams) -> RequestMemory {
        let number = params.get(RESPONSE_HEADER.as_str());
        let number = number.and_then(|values| values.first()?.parse().ok());
        let known = number.and_then(|number: u64| self.requests.lock().get(&number).cloned());
        RequestMemory {
            budget: self.budget.clone(),
            user: principal_of(params),
            reservation: known.unwrap_or_default(),
        }
    }
}

impl RequestMemory {
    /// Reserves memory for a response of this size, in place of an earlier reservation.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn reserve(&self, bytes: usize) {
        self.release();
        let permit = self.budget.acquire(&self.user, bytes).await;
        *self.reservation.0.lock() = Some(permit);
    }

    /// Reserves memory for a response of this size, unless the request has already reserved enough.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ensure(&self, bytes: usize) {
        if !self.fits(bytes) {
            self.reserve(bytes).await;
        }
    }

    /// True if a response of this size fits into the reservation. Returns the memory beyond this size, or all memory if
    /// the response does not fit.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        let mut reservation = self.reservation.0.lock();
        let Some(permit) = reservation.as_mut() else {
            return false;
        };
        if permit.bytes() >= bytes {
            permit.shrink_to(bytes);
            return true;
        }
        if permit.is_largest() {
            return true;
        }
        let too_small = reservation.take();
        drop(reservation);
        drop(too_small);
        false
    }

    /// Returns the reservation.
    pub(crate) fn release(&self) {
        self.reservation.release();
    }
}

impl ResponseReservation {
    fn release(&self) {
        let permit = self.0.lock().take();
        drop(permit);
    }
}

impl BuiltResponse {
    /// Returns the reservation with each part of the body that is handed over.
    pub(crate) fn hand_over(self, response: Response) -> Response {
        response.map(|body| Body::new(BuiltBody { body, built: self }))
    }
}

impl Drop for BuiltResponse {
    fn drop(&mut self) {
        self.memory.requests.lock().remove(&self.number);
        // An operation of a stream may still hold a clone.
        self.reservation.release();
    }
}

struct BuiltBody {
    body: Body,
    built: BuiltResponse,
}

impl HttpBody for BuiltBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            self.built.reservation.release();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Size of a value as JSON, in bytes.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value without a JSON form does not reach the client either.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}
