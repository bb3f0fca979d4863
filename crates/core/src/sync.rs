//! Synchronization primitives of decisions between threads, in one place, so that a concurrency model checker can
//! replace them and build the same source.

pub(crate) use std::sync::OnceLock;
