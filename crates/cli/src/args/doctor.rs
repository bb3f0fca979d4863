//! Flags of `doctor`.

use clap::Args;

use super::{ModelArgs, StoreArgs};

pub(crate) const DOCTOR_HELP: &str = "\
Exit codes:
  0 no problem found · 1 a problem found · 2 usage error";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Send a small request to the model, which costs a few tokens
    #[arg(long)]
    pub(crate) online: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}
