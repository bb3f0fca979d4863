//! The bindings, as clients see them.

mod bad_input;
mod connections;
mod extended_card;
mod fair_memory;
mod gated_log;
mod grpc;
mod grpc_errors;
mod http2_attack;
mod issuer;
mod jwks;
mod jwt;
mod known_failures;
mod known_stalls;
mod lists;
mod live_text;
mod operations;
mod push;
mod rate_limit;
mod refusals;
mod revoked;
mod streams;
mod support;
mod test_server;
mod tls;
mod v0_3;
