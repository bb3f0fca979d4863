//! Tests of the models with real sockets and files.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

// The test kit depends on this crate, so this crate cannot depend on the test kit. The server of the test kit is
// compiled here instead.
#[path = "../../../testkit/src/openai_server/mod.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the server has more than these tests need"
)]
mod openai_server;

mod connections;
mod failures;
mod limits;
mod provider;
mod record;
mod schema;
mod script;
mod support;
