//! Flags of `ps`, `stop` and `receipt`.

use clap::Args;

use super::StoreArgs;
use crate::remote::RemoteExtent;

pub(super) const STOP_HELP: &str = "\
A session is named by its id, by any end or beginning of it, or by `last`, the newest one that runs. The stop is the same as
Ctrl-C in its own terminal: both show the receipt. Work that a crash or --keep-background left running is ended too.

Exit codes:
  0 nothing of it is left running · 1 something is, or a process does not answer · 2 wrong usage

Examples:
  allstop ps
  allstop stop last
  allstop stop EGE6SJCE --extent session
  allstop stop --all --now ";

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// As JSON: one line for each process
    #[arg(long)]
    pub(crate) json: bool,
    /// Shows it again every second
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The session: its id, an end or a beginning of it, or `last`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// All sessions of this user that run, and left work of those in the store
    #[arg(long)]
    pub(crate) all: bool,
    /// Part of the session to stop
    #[arg(long, value_enum, default_value_t, value_name = "EXTENT")]
    pub(crate) extent: RemoteExtent,
    /// One call of the running turn, by its id in `ps`
    #[arg(long, value_name = "CALL", conflicts_with_all = ["extent", "all"])]
    pub(crate) call: Option<String>,
    /// Uses force at once, without grace
    #[arg(long)]
    pub(crate) now: bool,
    /// Dry run: says what would be stopped
    #[arg(long, conflicts_with = "now")]
    pub(crate) preview: bool,
    #[command(flatten)]
    pub(crate) shown: ReceiptFormatArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Form of receipts.
#[derive(Debug, Args)]
pub(crate) struct ReceiptFormatArgs {
    /// As JSON, one line for each receipt
    #[arg(long)]
    pub(crate) json: bool,
    /// Every detail
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// The session: its id, an end or a beginning of it, or `last`
    #[arg(default_value = "last")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) shown: ReceiptFormatArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}
