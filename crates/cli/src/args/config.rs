//! Flags of `config`.

use clap::{Args, Subcommand};

use super::ModelArgs;

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Show the configuration that applies: the file, with the flags over it
    Show(Box<ConfigShowArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Print the system prompt that a session in this folder would send, and nothing else
    #[arg(long)]
    pub(crate) prompt: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}
