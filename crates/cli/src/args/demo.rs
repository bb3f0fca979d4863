//! Flags of `allstop demo`.

use std::path::PathBuf;

use clap::Args;

use super::execution::HAS_NATS;

pub(super) const DEMO_HELP: &str = if HAS_NATS {
    CLUSTER_HELP
} else {
    "Stops a process tree that ignores SIGTERM, a stalled HTTP stream and a blocking thread together, in 3 seconds."
};

#[cfg(feature = "nats")]
pub(super) const ABOUT_WITH_CLUSTER: &str = "Stop a turn that resists every gentle stop, show the receipt, and prove it; --cluster: on several nodes";

const CLUSTER_HELP: &str = "\
Without --cluster: stops one turn on this machine with a process tree that ignores SIGTERM, a stalled HTTP stream and a \
blocking thread. The demo takes 3 seconds.

With --cluster: three NATS servers, three workers and a front end run as processes on loopback addresses. A task is stopped \
through the front end; then a worker and the leader of the NATS servers are killed while tasks run. At the end the \
demo accounts for every task. It takes about 40 seconds, and at most 60. It needs `nats-server` 2.11 or later, from \
https://nats.io/download.

The demo removes its processes and files, also after Ctrl-C. After `kill -9` of the demo its processes end too.

Exit codes:
  0 every proof holds · 1 a proof failed, or an error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop demo
  allstop demo --cluster --nats-server ./nats-server
  allstop demo --cluster --json | jq .proofs";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Let the blocking thread ignore the stop, to see it in the receipt. Exit code 1
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) wedged: bool,
    /// Run on several nodes: stop a task on another node, kill a worker, kill a server
    #[arg(long, hide = !HAS_NATS)]
    pub(crate) cluster: bool,
    /// Path of the NATS server program [default: `nats-server` in PATH]
    #[arg(long, value_name = "PATH", requires = "cluster", hide = !HAS_NATS)]
    pub(crate) nats_server: Option<PathBuf>,
    /// Print the receipt and the proofs as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
