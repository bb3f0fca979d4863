//! Synchronization primitives for decisions between threads. Tests with the concurrency model checker loom replace this
//! module, and compile the rest of the source unchanged.

pub(crate) use std::sync::OnceLock;
