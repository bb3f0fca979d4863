//! The subcommands.

pub(crate) mod bare;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
mod dying;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod mcp;
mod open_session;
pub(crate) mod ps;
pub(crate) mod receipt;
pub(crate) mod schema;
pub(crate) mod sessions;
pub(crate) mod stop;
pub(crate) mod store;
mod unreported_sessions;
pub(crate) mod watch;
#[cfg(feature = "nats")]
pub(crate) mod workers;
