//! Hooks and guardrails that are commands.
//!
//! A command runs in the scope of its hook, so a stop also ends the command, and the receipt of the stop lists it. The
//! output is read continuously and kept up to a limit. So neither long output nor a grandchild process that keeps the
//! pipe open blocks the command. Each command has a time limit; processes that the command leaves running are ended
//! afterwards.

mod event;
mod guardrail;
mod hook;
mod run;

use std::path::PathBuf;

use allstop_process::ContainmentChoice;

pub use event::{EVENT_BYTES_MAX, EVENT_VARIABLE};
pub(crate) use guardrail::CommandGuardrail;
pub(crate) use hook::CommandHook;

/// Settings that all commands of a session share.
#[derive(Debug, Clone)]
pub(crate) struct CommandSettings {
    /// Working directory of the commands.
    pub(crate) folder: PathBuf,
    pub(crate) containment: ContainmentChoice,
    /// Folder for events that are too long for a variable.
    pub(crate) event_folder: PathBuf,
}
