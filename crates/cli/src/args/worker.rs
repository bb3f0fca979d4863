//! Flags of `allstop worker` and `allstop workers`.

use clap::{Args, Subcommand};

use super::StoreArgs;
use super::execution::{ExecutionArgs, NatsArgs};

pub(super) const WORKER_HELP: &str = "\
A worker takes tasks that any `allstop serve --store nats://…` has accepted. While it runs it renews a lease. When it \
cannot, it stops its tasks by itself before another worker may take them over.

Stopping:
  SIGTERM or Ctrl-C: no task is taken, every running task is stopped and ends with its receipt. With --drain the tasks \
have that time to end by themselves first; a second signal cuts it short. `allstop workers drain` waits for the \
running tasks as long as they need, whatever --drain says.

Log:
  A lost lease, a new one and a lost connection to NATS are reported on standard error. ALLSTOP_LOG=warn adds what \
failed, ALLSTOP_LOG=info more.

Exit codes:
  0 drained by `allstop workers drain` · 1 error, such as no answer from NATS at the start · 2 usage error · \
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
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    pub(crate) action: WorkersAction,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) servers: NatsArgs,
    /// Print one JSON object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkersAction {
    /// List the workers that have a lease
    List,
    /// Make a worker take no more tasks, and end when those that it has have ended
    Drain {
        /// Id of the worker; a part of it is enough
        id: String,
    },
    /// List dead letters: tasks that ended one worker after another, and wake-ups that no worker can read
    Dead,
    /// Start a new task with the last message of a dead letter, in its context and for its user
    Redrive {
        /// Id of the dead letter, which is that of its task; a part of it is enough
        id: String,
    },
}
