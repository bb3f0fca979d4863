//! The subcommands.

pub(crate) mod completions;
pub(crate) mod sessions;
