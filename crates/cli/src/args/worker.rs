//! Flags of `allstop worker` and `allstop workers`.

use clap::{Args, Subcommand};

use super::StoreArgs;
use super::execution::{ExecutionArgs, NatsArgs};

pub(super) const WORKER_HELP: &str = "\
A worker takes tasks that any `allstop serve --store nats://…` has accepted. While it runs it renews a
lease. When it cannot, it stops its tasks by itself before another worker may take them over.

Stopping:
  SIGTERM or Ctrl-C: no task is taken, every running task is stopped and ends with its receipt. With
  --drain the tasks have that time to end by themselves first; a second signal cuts it short.

Exit codes:
  0 drained by `allstop workers drain` · 1 error · 2 wrong usage · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop worker --store nats://127.0.0.1:4222 --agent echo
  allstop worker --store nats://n1:4222,nats://n2:4222 --concurrency 32 --drain 5m --model openai::gpt-5-mini";

pub(super) const WORKERS_HELP: &str = "\
Examples:
  allstop workers list --store nats://127.0.0.1:4222
  allstop workers drain 01J9 --store nats://127.0.0.1:4222     (the beginning of an id is enough)
  allstop workers dead --store nats://127.0.0.1:4222           (tasks that were set aside)
  allstop workers redrive 01J9 --store nats://127.0.0.1:4222   (a new task with the message of such a one)";

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
    /// One JSON object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkersAction {
    /// List the workers that have a lease
    List,
    /// Make a worker take no more tasks, and end when those that it has have ended
    Drain {
        /// Id of the worker, or its beginning
        id: String,
    },
    /// List what was set aside: tasks that ended one worker after another, and wake-ups that nobody can read
    Dead,
    /// Start a new task with the last message of one that was set aside, in its context and for its user
    Redrive {
        /// Id of the task that was set aside, or its beginning
        id: String,
    },
}
