//! The subcommands.

pub(crate) mod completions;
pub(crate) mod sessions;
pub(crate) mod workers;
