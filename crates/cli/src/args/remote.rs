//! Flags of `ps`, `stop`, `watch` and `receipt`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::StoreArgs;
use allstop_core::{Cause, CauseKind};
use allstop_remote::RemoteExtent;

pub(super) const PS_HELP: &str = "\
--store FILE, or the environment variable ALLSTOP_STORE, limits the list to sessions of that store.

Exit codes:
  0 the list is complete · 1 a process does not answer, or work of the store may run that cannot be listed \
· 2 usage error

Examples:
  allstop ps
  allstop ps --watch
  allstop ps --json | jq -r '.sessions[].session_id' ";

pub(super) const STOP_HELP: &str = "\
Name a session by its id or any unique part of it, by its number in `sessions list`, or by `last`: the most recently \
active open session, or the latest session of the store if no session is open. The stop works like Ctrl-C in the \
session's own terminal, and both terminals show the receipt. An id or --all also stops work that a crash or \
--keep-background left running.

Exit codes:
  0 no work is left running · 1 work is left running, or a process does not answer · 2 usage error, or not found

Examples:
  allstop ps
  allstop stop last
  allstop stop EGE6SJCE --extent session
  allstop stop last --reason \"wrong branch\"
  allstop stop --all --now ";

pub(super) const WATCH_HELP: &str = "\
Shows the state of the running turn, then each new event: the answer, calls with their output, receipts. \
You can also answer an open permission question of a chat, a run or a Copilot session here; the first answer counts. A run \
without a terminal denies its questions at once, also while a watcher is connected. Only the client of a served task can \
answer its questions. Ctrl-C stops watching; the session keeps running.

Exit codes:
  0 the session was closed, or Ctrl-C · 1 the session's process has ended or does not answer · 2 usage error, or \
not found

Examples:
  allstop watch last
  allstop watch EGE6SJCE --read-only
  allstop watch last --json | jq -r 'select(.event == \"tool_started\").name' ";

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The session: its id or a part of it, its number in `sessions list`, or `last`, the most recently active open
    /// session
    #[arg(default_value = "last")]
    pub(crate) id: String,
    /// Show permission questions without answering them
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Print one line of JSON for each event, like `run --stream-json`, without questions
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Print one JSON object; with --watch one object per second
    #[arg(long)]
    pub(crate) json: bool,
    /// Refresh the list every second
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The session: its id or a part of it, its number in `sessions list`, or `last`: the most recently active open
    /// session, or the latest session of the store if no session is open. `last` waits up to 2 s for a process that is
    /// starting
    #[arg(conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Stop all open sessions of this user, the commands of `mcp serve`, and orphaned work of the store
    #[arg(long)]
    pub(crate) all: bool,
    /// Part of the session to stop
    #[arg(long, value_name = "EXTENT", value_parser = extents(), default_value = EXTENT_DEFAULT)]
    pub(crate) extent: RemoteExtent,
    /// Stop one call of the running turn, or one background item, by its id in `ps`
    #[arg(long, value_name = "CALL", conflicts_with_all = ["extent", "all"])]
    pub(crate) call: Option<String>,
    /// Reason, for the receipt
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Use force at once, without grace
    #[arg(long)]
    pub(crate) now: bool,
    /// Dry run: show what would be stopped
    #[arg(long, conflicts_with = "now")]
    pub(crate) preview: bool,
    #[command(flatten)]
    pub(crate) shown: ReceiptFormatArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

impl StopArgs {
    /// Cause of the stop, for the receipt. `by` names this process.
    pub(crate) fn cause(&self, by: &str) -> Cause {
        let cause = Cause::new(CauseKind::User).by(by.to_owned());
        match &self.reason {
            Some(reason) => cause.detail(reason.clone()),
            None => cause,
        }
    }
}

/// Names and aliases of the extents: the parts of a session that a stop can cover. Receipts and requests contain the
/// alias of [`RemoteExtent::TurnAndBackground`].
const EXTENTS: [(&str, &str, RemoteExtent); 3] = [
    ("turn", "turn", RemoteExtent::Turn),
    (
        EXTENT_DEFAULT,
        "turn_and_background",
        RemoteExtent::TurnAndBackground,
    ),
    ("session", "session", RemoteExtent::Session),
];

const EXTENT_DEFAULT: &str = "turn-and-background";

fn extents() -> impl TypedValueParser<Value = RemoteExtent> {
    let values = EXTENTS.map(|(name, other_name, extent)| {
        PossibleValue::new(name)
            .alias(other_name)
            .help(match extent {
                RemoteExtent::Turn => "The running turn; background work continues",
                RemoteExtent::TurnAndBackground => {
                    "The turn and all background work, including detached work; the session stays open"
                }
                RemoteExtent::Session => {
                    "All work of the session in its process; then the session is closed"
                }
            })
    });
    PossibleValuesParser::new(values).map(|given| {
        let named = EXTENTS
            .into_iter()
            .find(|(name, other_name, _)| [*name, *other_name].contains(&&*given));
        named.map_or_else(RemoteExtent::default, |(_, _, extent)| extent)
    })
}

/// Output format of receipts.
#[derive(Debug, Args)]
pub(crate) struct ReceiptFormatArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every detail
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// The session: its id or a part of it, or `last`
    #[arg(default_value = "last")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) shown: ReceiptFormatArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CliCommand};

    #[test]
    fn an_extent_has_hyphens_or_underscores() {
        let extent = |words: &[&str]| {
            let words = ["allstop", "stop", "last"].iter().chain(words);
            match Cli::try_parse_from(words).unwrap().command {
                CliCommand::Stop(args) => args.extent,
                other => panic!("it is a stop: {other:?}"),
            }
        };
        for name in ["turn-and-background", "turn_and_background"] {
            assert_eq!(extent(&["--extent", name]), RemoteExtent::TurnAndBackground);
        }
        assert_eq!(extent(&["--extent", "session"]), RemoteExtent::Session);
        assert_eq!(extent(&[]), RemoteExtent::TurnAndBackground);
    }
}
