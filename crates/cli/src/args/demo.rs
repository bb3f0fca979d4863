//! Flags of `allstop demo`.

use std::path::PathBuf;

use clap::Args;

use super::execution::HAS_NATS;

pub(super) const DEMO_HELP: &str = if HAS_NATS {
    CLUSTER_HELP
} else {
    "A shell tree that ignores SIGTERM, a stalled HTTP stream and a blocking thread are stopped at once, in 3 seconds."
};

#[cfg(feature = "nats")]
pub(super) const ABOUT_WITH_CLUSTER: &str = "Stop a turn that does everything wrong, show the receipt, and prove it; --cluster: on several nodes";

const CLUSTER_HELP: &str = "\
Without --cluster: one turn on this machine. A shell tree that ignores SIGTERM, a stalled HTTP stream and a blocking \
thread are stopped at once. It takes 3 seconds.

With --cluster: three NATS servers, three workers and a front end run as processes on loopback addresses. A task is stopped \
through the front end; then a worker and the leader of the NATS servers are killed while tasks run. At the end every \
task is accounted for. It takes about 40 seconds, and 60 at most. It needs `nats-server` 2.11 or later, from \
https://nats.io/download.

Nothing is left behind: not after Ctrl-C, and no process after `kill -9` of the demo itself.

Exit codes:
  0 every proof holds · 1 a proof failed, or an error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop demo
  allstop demo --cluster --nats-server ./nats-server
  allstop demo --cluster --json | jq .proofs";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Let the blocking thread ignore the stop, to see how a receipt reports it. Exit code 1
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) wedged: bool,
    /// Run on several nodes: stop a task of another node, kill a worker, kill a server
    #[arg(long, hide = !HAS_NATS)]
    pub(crate) cluster: bool,
    /// The program of the NATS servers [default: `nats-server` in PATH]
    #[arg(long, value_name = "PATH", requires = "cluster", hide = !HAS_NATS)]
    pub(crate) nats_server: Option<PathBuf>,
    /// Print the receipt and the proofs as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
