//! The log on SQLite.

mod busy;
mod classify;
mod connection;
mod damage;
mod erasure_mark;
mod files;
#[cfg(test)]
mod full_disk_tests;
mod lock_folder;
mod maintenance;
mod new_store;
mod open_mark;
mod open_stores;
mod other_path;
mod read_only;
mod reader;
mod record_chain;
mod restored;
mod store;
mod stream_notifier;
mod streams;
mod thread;
mod write_back;
mod writer;

pub use maintenance::{
    BackupReport, CompactReport, CutStream, EndOfCut, MaintenanceStop, Progress, RepairReport,
    StoreCheckReport, StoreMaintenance, StoreProblem,
};
pub use read_only::open_for_reading;
pub use store::SqliteLog;
