//! The primitives that decisions between threads rest on, in one place: models of concurrency build the same source
//! over others.

pub(crate) use std::sync::OnceLock;
