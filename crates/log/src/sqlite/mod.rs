//! The log on SQLite.

mod chain;
mod classify;
mod connection;
mod files;
#[cfg(test)]
mod full;
mod growth;
mod lock_folder;
mod new_store;
mod reader;
mod store;
mod streams;
mod thread;
mod writer;

pub use store::SqliteLog;
