//! Views for people and programs: receipts, the live view, the JSON stream, tables, and their labels.
//!
//! Views send their output to an [`OutputQueue`](allstop_terminal::OutputQueue) and write nothing themselves. Output
//! therefore never blocks the process, and untrusted text cannot control a terminal.

mod change;
mod cost;
mod definitions;
mod effects;
#[cfg(test)]
mod hostile_tests;
mod instructions;
mod json_stream;
mod labels;
mod live;
mod project_file;
mod receipt;
pub(crate) mod recorded;
pub(crate) mod transcript;
mod watch;

pub(crate) use change::{change_counts, change_role};
pub(crate) use cost::{describe_cost, describe_session_cost, describe_usage};
pub(crate) use definitions::{
    count_definitions, describe_project_definitions, help_on_definitions,
};
pub(crate) use effects::{describe_effects, describe_effects_so_far, describe_lost};
pub(crate) use instructions::describe_instructions;
pub(crate) use json_stream::JsonStream;
pub(crate) use labels::{
    age, denial, describe_ending, describe_interrupted, found as found_in_run, found_in_chat,
    plain, stop_reason as describe_stop_reason, to_stop, waits_for,
};
pub(crate) use live::{LiveOptions, LiveView};
pub(crate) use project_file::{describe_mcp_json, describe_project_file};
pub(crate) use receipt::{
    RECEIPT_WIDTH_DEFAULT, is_worth_showing, render_full_receipt, render_receipt, work_line,
};
pub(crate) use watch::EventView;
