//! Tests of the log on real NATS servers.

mod cluster;
mod conformance;
mod credentials;
mod faults;
mod locks;
mod support;
mod tls;
