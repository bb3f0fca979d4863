//! MCP servers over standard input and output and over HTTP: the receipts of stopped calls, and the effects of a bad
//! server.
#![expect(
    clippy::unwrap_used,
    reason = "the lint does not know the helpers of tests for tests"
)]

mod abandoned;
mod bad_servers;
mod calls;
mod conformance;
mod everything;
mod http;
mod http_cancellations;
mod late_starts;
mod legacy_events;
mod lists;
mod logins;
mod server_exits;
mod stateless;
mod status_events;
mod stops;
mod support;
mod task_calls;
