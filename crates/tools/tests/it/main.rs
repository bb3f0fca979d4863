//! Tests of each tool through its public interface, with input from a careless or hostile model.
#![expect(
    clippy::unwrap_used,
    reason = "the lint does not know the helpers of tests for tests"
)]

mod background;
mod denied_program;
mod escape;
mod external;
mod files;
mod hostile;
mod output;
mod output_budget;
mod permission;
mod permission_table;
mod registry;
mod search;
mod shell;
mod stop;
mod support;
mod tasks;
