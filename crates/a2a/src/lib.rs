//! The protocol A2A 1.0 for the tasks of Allstop, over JSON-RPC, REST and gRPC. Over JSON-RPC, also version 0.3.
//!
//! [`A2aService`] maps each operation of the protocol to an operation of the
//! [`TaskManager`](allstop_task::TaskManager). The types and the bindings come from the crates of the A2A project. This
//! server differs from a usual A2A server in two properties:
//!
//! - The id of a streamed event is the number of its record in the task's log. A client that reconnects with
//!   `Last-Event-ID` receives all events, without duplicates, even after a restart of the server.
//! - The metadata of a stopped task contains the receipt of the stop ([`RECEIPT_EXTENSION`]). The receipt lists each
//!   part of the stopped work, with the proof that the part has ended, or the reason why the part may still run.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use allstop_a2a::{
//!     A2aService, AccessControl, AgentDescription, NoAuthentication, ServerOptions, agent_card, http_router, serve,
//! };
//! use allstop_scope::Scope;
//! use allstop_task::TaskManager;
//! use tokio::net::TcpListener;
//!
//! /// Serves the tasks of a manager without authentication, until the scope is stopped.
//! async fn serve_tasks(manager: TaskManager, listener: TcpListener, scope: Scope) -> std::io::Result<()> {
//!     let card = agent_card(&AgentDescription {
//!         name: "Backup".into(),
//!         description: "Backs up disks.".into(),
//!         version: "1.0.0".into(),
//!         http_url: format!("http://{}", listener.local_addr()?),
//!         grpc_url: None,
//!     });
//!     let service = Arc::new(A2aService::new(manager));
//!     let router = http_router(&service, card, AccessControl::new(Arc::new(NoAuthentication)));
//!     serve(listener, router, scope, ServerOptions::default()).await;
//!     Ok(())
//! }
//! ```

mod access;
mod bounded_file;
mod card;
mod card_routes;
mod connection_activity;
mod errors;
mod events;
mod from_wire;
#[cfg(feature = "grpc")]
mod grpc;
mod integral_floats;
mod jsonrpc;
mod legacy;
mod limits;
mod listing;
mod localhost;
mod overload;
mod page;
mod page_token;
mod push;
mod receipt_extension;
mod response_memory;
mod rest;
mod router;
mod server;
mod service;
mod streaming;
mod task_actions;
mod tls;
mod to_wire;
mod unread_body;
mod v0_3;
mod version;

pub use a2a::AgentCard;
pub use access::{
    ANONYMOUS, AccessControl, Authenticator, InvalidPrincipal, JWT_PRINCIPAL_PREFIX, JwksError,
    JwksFile, JwksRefreshTimes, JwksUrl, JwtAuthenticator, JwtKeySet, NoAuthentication, Principal,
    TokenFile, TokenFileError, Unauthenticated, principal_of_headers, refresh_keys,
};
pub use card::{
    AgentDescription, BearerScheme, SERVER_EXTENSION, agent_card, extended_agent_card, secured_card,
};
#[cfg(feature = "grpc")]
pub use grpc::grpc_router;
pub use ipnet::IpNet;
pub use listing::UNREADABLE_EXTENSION;
pub use push::{
    HostResolver, OpenPushError, PushNotifications, PushOptions, PushSecret, PushStoreError,
    ShortPushSecret, SystemResolver,
};
pub use receipt_extension::RECEIPT_EXTENSION;
pub use router::{http_router, restricted};
pub use server::{PLACE_LIMITS, ServerOptions, serve};
pub use service::A2aService;
pub use tls::{ServerTls, TlsFilesError};
