//! The log on SQLite.

mod classify;
mod connection;
mod files;
#[cfg(test)]
mod full_disk_tests;
mod lock_folder;
mod log_damage;
mod maintenance;
mod new_store;
mod reader;
mod record_chain;
mod store;
mod stream_notifier;
mod streams;
mod thread;
mod write_back;
mod writer;

pub use maintenance::{
    CheckReport, CompactReport, CutStream, Progress, RepairReport, StoreMaintenance, StoreProblem,
};
pub use store::SqliteLog;
