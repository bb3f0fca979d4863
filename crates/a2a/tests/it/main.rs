//! The bindings, as clients see them.

mod connections;
mod grpc;
mod operations;
mod push;
mod streams;
mod support;
