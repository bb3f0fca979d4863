//! Tests of the log on real NATS servers.

mod conformance;
mod faults;
mod locks;
mod support;
