//! Arguments of `allstop store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) const STORE_HELP: &str = "Examples:\n  \
    allstop store check                       # read everything, name each problem\n  \
    allstop store backup ~/store-copy.db      # a complete copy, while others use the store\n  \
    allstop store repair                      # after damage: keeps the damaged files\n  \
    allstop store export sessions.jsonl       # all sessions and tasks as JSON lines";

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    #[cfg_attr(
        feature = "nats",
        doc = "Session database file; for `serve`, `worker` and `workers` also NATS servers (`nats://HOST:PORT,…`)"
    )]
    #[cfg_attr(not(feature = "nats"), doc = "Session database file")]
    /// [default: ~/.local/share/allstop/store.db]
    #[arg(long, value_name = "PATH", env = "ALLSTOP_STORE", global = true)]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StoreCommandArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) action: StoreAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreAction {
    /// Read the whole store, and name each problem. Exits with 1 if there is one
    Check {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a complete copy of the store, while others use it
    Backup {
        /// File to write; it must not exist
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Free the space of removed sessions, and erase their text from the file
    Compact,
    /// Rewrite a damaged store with all readable records. Keeps the damaged files
    Repair,
    /// Write all sessions and tasks as JSON lines
    Export {
        /// File to write; it must not exist. `-` is standard output
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Add the sessions and tasks of an export. Existing ones stay as they are
    Import {
        /// File to read; `-` is standard input
        #[arg(value_name = "FILE")]
        from: PathBuf,
    },
}
