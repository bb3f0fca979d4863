//! JSON-RPC 2.0 with Content-Length framing, as the Language Server Protocol uses it: frames, messages, and pending
//! requests in both directions.
//!
//! This crate follows the rules of the [JSON-RPC 2.0 specification] and of the [base protocol of LSP 3.17]. The crate
//! does no I/O: it reads no stream and spawns no task. The caller pushes received bytes and writes the returned frames.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use allstop_jsonrpc::{FrameDecoder, FrameLimits, IncomingMessage, IncomingRequests};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (tx, rx) = mpsc::channel();
//! let sink = Arc::new(move |answer| {
//!     // A queue without a reader drops the answer, which frees the slot of its request.
//!     tx.send(answer).ok();
//! });
//! let requests = IncomingRequests::new(64, sink);
//! let limits = FrameLimits { header_bytes_max: 4096, body_bytes_max: 1 << 20 };
//! let mut decoder = FrameDecoder::new(limits);
//!
//! decoder.push(b"Content-Length: 54\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":7,\"met");
//! assert_eq!(decoder.next_frame()?, None);
//! decoder.push(b"hod\":\"add\",\"params\":[1,2]}");
//! let body = decoder.next_frame()?.expect("a whole frame");
//! assert!(decoder.is_at_boundary());
//!
//! let IncomingMessage::Request(request) = IncomingMessage::parse(&body)? else {
//!     panic!("a request");
//! };
//! let responder = requests.accept(request.id)?;
//! assert_eq!(request.method, "add");
//! let params = request.params.expect("parameters");
//! let numbers: Vec<u64> = serde_json::from_str(params.get())?;
//! responder.respond(Ok(numbers.iter().sum::<u64>()));
//!
//! let answer = rx.recv()?;
//! assert_eq!(
//!     answer.frame(),
//!     b"Content-Length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":3}"
//! );
//! assert_eq!(requests.in_flight_len(), 1);
//! drop(answer); // after it was written
//! assert_eq!(requests.in_flight_len(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! 1. For every split of a stream into chunks, the decoder returns the same frames and, if the stream is invalid, the
//!    same error.
//! 2. Input uses memory only for bytes that have arrived: a decoder holds at most one header, one body and the largest
//!    chunk. `pending_max` bounds each table of requests.
//! 3. No input panics, and no depth of nesting overflows the stack.
//! 4. An answer repeats the id of its request byte for byte.
//! 5. An accepted request gets exactly one answer. The id of the request and its slot in the table become free only
//!    when the answer is written.
//! 6. A sent request gets at most one answer. The request leaves the table when it is answered, when it is withdrawn,
//!    or when the table is closed.
//!
//! # Cancel safety
//!
//! [`PendingResponse`] is the only future. Dropping this future withdraws the request and has no other effect.
//!
//! [JSON-RPC 2.0 specification]: https://www.jsonrpc.org/specification
//! [base protocol of LSP 3.17]:
//!     https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/#baseProtocol

mod encode;
mod frame;
mod incoming;
mod message;
mod outgoing;
mod raw_message_fields;
mod rpc_error;
mod rpc_id;

pub use encode::{
    EncodeMessageError, encode_error_response, encode_notification, encode_request, encode_response,
};
pub use frame::{FrameDecoder, FrameError, FrameLimits, encode_frame};
pub use incoming::{AnswerSink, IncomingRequests, QueuedAnswer, Responder};
pub use message::{IncomingMessage, IncomingRequest, MalformedMessage};
pub use outgoing::{
    AnswerDelivery, BeginRequestError, OutgoingRequests, PendingResponse, RpcFailure,
};
pub use rpc_error::RpcError;
pub use rpc_id::RpcId;
