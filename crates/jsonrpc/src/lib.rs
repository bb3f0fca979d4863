//! JSON-RPC 2.0 with Content-Length framing, as the Language Server Protocol uses it.
//!
//! The rules are those of the [JSON-RPC 2.0 specification] and of the [base protocol of LSP 3.17]. This crate is no
//! transport: it reads no stream and spawns nothing. The caller pushes bytes in and writes frames out.
//!
//! [JSON-RPC 2.0 specification]: https://www.jsonrpc.org/specification
//! [base protocol of LSP 3.17]:
//!     https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/#baseProtocol

mod encode;
mod frame;
mod message;
mod outgoing;
mod raw_message_fields;
mod rpc_error;
mod rpc_id;

pub use encode::{
    EncodeMessageError, encode_error_response, encode_notification, encode_request, encode_response,
};
pub use frame::{FrameDecoder, FrameError, FrameLimits, encode_frame};
pub use message::{IncomingMessage, IncomingRequest, MalformedMessage};
pub use outgoing::{
    AnswerDelivery, BeginRequestError, OutgoingRequests, PendingResponse, RpcFailure,
};
pub use rpc_error::RpcError;
pub use rpc_id::RpcId;
