//! Flags of `init`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write [default: ~/.config/allstop/allstop.toml]
    #[arg(long, value_name = "FILE", env = "ALLSTOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}
