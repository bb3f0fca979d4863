//! Servers of tools, over standard input and output and over HTTP: what a stop says of a call that runs in one, and what
//! a bad server costs.
#![expect(
    clippy::unwrap_used,
    reason = "the lint does not know the helpers of tests for tests"
)]

mod abandoned;
mod bad_servers;
mod calls;
mod everything;
mod http;
mod lists;
mod news;
mod stops;
mod support;
