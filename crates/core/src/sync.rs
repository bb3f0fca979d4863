//! Synchronization primitives for decisions between threads. A concurrency model checker replaces this module, and
//! builds the rest of the source unchanged.

pub(crate) use std::sync::OnceLock;
