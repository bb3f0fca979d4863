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
    /// Show the effective configuration: your file, overridden by the trusted file of this folder and by the flags
    Show(Box<ConfigShowArgs>),
    /// Trust the current settings of this folder (`.allstop.toml`, commands, skills and agents), and list their effects.
    /// After a change Allstop asks again
    Trust,
    /// Forget your answer about the settings of this folder
    Untrust,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Print only the system prompt that a session in this folder would send
    #[arg(long)]
    pub(crate) prompt: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}
