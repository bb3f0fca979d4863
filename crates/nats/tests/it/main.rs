//! Tests of the log on real NATS servers.

mod cluster;
mod conformance;
mod credentials;
mod faults;
mod locks;
mod retention;
mod support;
mod tls;
