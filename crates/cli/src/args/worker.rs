//! Flags of `allstop worker` and `allstop workers`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::StoreArgs;
use super::execution::{ExecutionArgs, NatsArgs};

pub(super) const WORKER_HELP: &str = "\
A worker runs tasks that any `allstop serve --store nats://…` has accepted. It renews a lease. If the renewal fails, \
the worker stops its tasks before another worker may take them over.

Stopping:
  On SIGTERM or Ctrl-C, the worker accepts no new tasks, and stops every running task with a receipt. With --drain the \
tasks first have that time to end by themselves; a second signal cuts it short. `allstop workers drain` ignores \
--drain: the worker waits for its running tasks without a limit.

Log:
  The worker reports a lost lease, a new lease and a lost connection to NATS on standard error. The environment variable \
ALLSTOP_LOG=warn adds failures, and ALLSTOP_LOG=info adds details.

Exit codes:
  0 drained by `allstop workers drain` · 1 error, such as no answer from NATS at startup · 2 usage error · \
130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop worker --store nats://127.0.0.1:4222 --agent echo
  allstop worker --store nats://n1:4222,nats://n2:4222 --concurrency 32 --drain 5m --model gpt-5-mini";

pub(super) const WORKERS_HELP: &str = "\
Examples:
  allstop workers list --store nats://127.0.0.1:4222
  allstop workers drain EGE6SJCE --store nats://127.0.0.1:4222
  allstop workers dead --store nats://127.0.0.1:4222
  allstop workers redrive 5NBR4XQC --store nats://127.0.0.1:4222";

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) execution: ExecutionArgs,
    /// Serve /metrics, /healthz and /readyz on this loopback address; port 0 picks a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    pub(crate) action: WorkersAction,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) servers: NatsArgs,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkersAction {
    /// List the workers that have a lease
    List,
    /// Drain a worker: it accepts no new tasks, and exits after its running tasks
    Drain {
        /// Id of the worker; a part of it is enough
        id: String,
    },
    /// List dead letters: tasks whose workers crashed one after another, and wake-ups that no worker can read
    Dead,
    /// Start a new task with the last message of a dead letter, in its context and for its user
    Redrive {
        /// Id of the dead letter, equal to its task's id; a part of it is enough
        id: String,
    },
}
