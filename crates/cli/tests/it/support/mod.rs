//! Shared parts of the tests: an isolated environment, the command in this environment, and checks for leftover
//! processes.

pub(crate) mod agreement;
pub(crate) mod chat_user;
pub(crate) mod command;
pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod mcp_server;
pub(crate) mod parts;
pub(crate) mod place;
pub(crate) mod processes;
pub(crate) mod random;
pub(crate) mod running;
pub(crate) mod schema;
pub(crate) mod subcommands;
pub(crate) mod terminal;
pub(crate) mod wait;

pub(crate) use command::Allstop;
pub(crate) use place::Place;
pub(crate) use running::{Ended, Running};
pub(crate) use wait::{FACT_MAX, eventually};

/// Signals that the tests send.
pub(crate) use rustix::process::Signal;
