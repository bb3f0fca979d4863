//! Flags of `doctor`.

use clap::Args;

use super::{ModelArgs, StoreArgs};

pub(crate) const DOCTOR_HELP: &str = "\
Exit codes:
  0 nothing is in the way · 1 something is · 2 usage error";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Send the model a tiny request, which costs a few tokens
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
