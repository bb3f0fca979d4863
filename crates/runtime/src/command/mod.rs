//! Hooks and guardrails that are commands.
//!
//! A command runs in the scope of its hook: a stop covers it, and the receipt names it. Its output is read all along
//! and kept up to a bound, so neither a lot of it nor a grandchild that holds the pipe hangs anything; its time is
//! bounded; and when it has ended, whatever it left behind is ended too.

mod event;
mod guardrail;
mod hook;
mod run;

use std::path::PathBuf;

use allstop_scope::process::ContainmentChoice;

pub use event::{EVENT_BYTES_MAX, EVENT_VARIABLE};
pub(crate) use guardrail::CommandGuardrail;
pub(crate) use hook::CommandHook;

/// What all commands of a session share.
#[derive(Debug, Clone)]
pub(crate) struct CommandSettings {
    /// Where they start.
    pub(crate) folder: PathBuf,
    /// How they are contained.
    pub(crate) containment: ContainmentChoice,
    /// Where events go that are too long for a variable.
    pub(crate) event_folder: PathBuf,
}
