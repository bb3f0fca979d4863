//! A2A 1.0 over the task manager: JSON-RPC, REST and gRPC.
//!
//! [`A2aService`] maps each operation of the protocol to one of [`TaskManager`](allstop_task::TaskManager); the types
//! and the bindings are those of the A2A project's own crates. Two things are different from a usual server:
//!
//! - Event ids of a stream are the numbers of its records. A client that reconnects with `Last-Event-ID` misses nothing
//!   and sees nothing twice, also after a restart of the server.
//! - A task that was stopped carries the receipt of the stop in its metadata ([`RECEIPT_EXTENSION`]).

mod card;
mod errors;
mod events;
mod from_wire;
mod grpc;
mod legacy;
mod limits;
mod page_token;
mod principal;
mod push;
mod receipt_extension;
mod rest;
mod rest_cancel;
mod router;
mod server;
mod service;
mod streaming;
mod to_wire;
mod token_file;
mod version;

pub use card::{AgentDescription, agent_card, require_bearer_token};
pub use grpc::grpc_router;
pub use ipnet::IpNet;
pub use principal::{
    ANONYMOUS, Authenticator, InvalidPrincipal, NoAuthentication, Principal, Unauthenticated,
};
pub use push::{
    HostResolver, OpenPushError, PushNotifications, PushOptions, PushSecret, PushStoreError,
    ShortPushSecret, SystemResolver,
};
pub use receipt_extension::RECEIPT_EXTENSION;
pub use router::http_router;
pub use server::{ServerOptions, serve};
pub use service::A2aService;
pub use token_file::{TokenFile, TokenFileError};
