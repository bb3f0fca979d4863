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
    /// Show the configuration that applies: your file, with the trusted file of this folder and the flags over it
    Show(Box<ConfigShowArgs>),
    /// Trust the settings of this folder, `.allstop.toml`, as they are now: shows what they do. A change asks again
    Trust,
    /// Forget whether you trust the settings of this folder
    Untrust,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Print the system prompt that a session in this folder would send, and nothing else
    #[arg(long)]
    pub(crate) prompt: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}
