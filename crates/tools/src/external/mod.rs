//! External tools. The handler of these tools runs in another process, and a channel carries the requests and the
//! answers.
//!
//! [`external_tools`] creates both sides: the tools, which an agent calls like all other tools, and
//! [`ExternalRequests`], which the connection to the handler reads. A call counts as remote work of its scope. A stop
//! notifies the handler once. The receipt of the stop reports the known state of the call: the state is `unreachable`
//! if the handler does not reply.
//!
//! Invariants:
//! 1. A call is answered at most once: the answer removes its pending request.
//! 2. An answer after the end of its call is never delivered, but counted and reported.
//! 3. A call never waits for space in the queue: if the queue is full, the call gets an error result.
//! 4. The handler receives a cancellation of a call at most once, and only if the handler has taken the call.

mod call;
mod pending;
mod requests;
mod serve;

pub use call::external_tools;
pub use requests::{
    Delivery, ExternalEvent, ExternalHandler, ExternalOptions, ExternalRequest, ExternalRequests,
    LateAnswer, QUEUE_LEN_MAX, RequestId,
};
