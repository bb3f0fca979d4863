//! The bindings, as clients see them.

mod connections;
mod operations;
mod streams;
mod support;
