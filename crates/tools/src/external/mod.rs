//! Tools whose handler lives elsewhere: in another process, behind a channel. Requests go out, answers come in.
//!
//! [`external_tools`] makes both ends: the tools, which an agent calls like any other, and [`ExternalRequests`], which
//! whoever speaks to the handler reads. A call is remote work of its scope: a stop tells the handler, once, and then
//! the receipt says what is known, `unreachable` where the handler says nothing.
//!
//! Invariants:
//! 1. A call is answered at most once: the answer takes it out of the desk.
//! 2. What comes after the call has ended is never delivered. It is counted and reported.
//! 3. A call never waits for the handler to take it: a full queue is an error result.
//! 4. The handler hears of a cancellation once, and only of calls that it has taken.

mod call;
mod desk;
mod requests;
mod serve;

pub use call::external_tools;
pub use requests::{
    Delivery, ExternalEvent, ExternalHandler, ExternalOptions, ExternalRequest, ExternalRequests,
    LateAnswer, QUEUE_LEN_MAX, RequestId,
};
