//! The bindings, as clients see them.

mod connections;
mod operations;
mod push;
mod streams;
mod support;
