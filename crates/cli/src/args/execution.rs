//! Flags of the commands that run tasks: `allstop serve` and `allstop worker`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use allstop_core::HumanDuration;
use clap::{Args, ValueEnum};

use super::grace::GraceArgs;
use super::values::{age, at_least_one, deadline};
use super::{ModelArgs, PermissionArgs, StoreArgs, TraceArgs};

/// True if this program was built with the NATS client.
pub(super) const HAS_NATS: bool = cfg!(feature = "nats");

#[derive(Debug, Clone, Args)]
pub(crate) struct ExecutionArgs {
    /// Agent that runs the tasks
    #[arg(long, value_name = "NAME", default_value = "model")]
    pub(crate) agent: TaskAgent,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    /// Maximum steps per turn [default: 50]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>, help_heading = "Limits")]
    pub(crate) max_steps: Option<NonZeroU32>,
    /// Maximum tasks that run at a time [default: as many as the limit of open files permits]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroUsize>, help_heading = "Limits")]
    pub(crate) max_tasks: Option<NonZeroUsize>,
    /// Maximum tasks of one user that run at a time [default: no limit]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroUsize>, help_heading = "Limits")]
    pub(crate) max_tasks_per_user: Option<NonZeroUsize>,
    /// Maximum tasks that wait when a limit is reached [default: reject them]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) queue: Option<usize>,
    /// Maximum run time of a task [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Limits")]
    pub(crate) task_timeout: Option<HumanDuration>,
    /// Maximum time between two events of a task [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Limits")]
    pub(crate) inactivity: Option<HumanDuration>,
    /// Maximum time that a task with an answer waits for its background work, which then keeps running [default: 10m]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) background_wait: Option<HumanDuration>,
    /// Remove tasks that ended longer ago, with their conversations, such as 30d [default: keep all tasks]
    #[arg(long, value_name = "TIME", value_parser = age, help_heading = "Limits")]
    pub(crate) keep_tasks: Option<HumanDuration>,
    /// Remove the tasks that ended first, with their conversations, if more ended tasks are stored. Every task stays for
    /// a minute after its end, also with 0 [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) keep_tasks_max: Option<usize>,
    /// Time for running tasks to end by themselves after SIGTERM or Ctrl-C [default: stop them at once]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) drain: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
}

/// Flags of a cluster store, `--store nats://HOST:PORT`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Maximum tasks that this process runs at a time, with a NATS store [default: serve 0, worker 16]
    #[arg(long, value_name = "N", help_heading = "Cluster", hide = !HAS_NATS)]
    pub(crate) concurrency: Option<usize>,
    #[command(flatten)]
    pub(crate) servers: NatsArgs,
    /// Lease of a worker: without a renewal for this time, other workers take over its tasks. All workers need the same
    /// value
    #[arg(long, value_name = "TIME", value_parser = deadline, default_value = "20s", help_heading = "Cluster", hide = !HAS_NATS)]
    pub(crate) lease: HumanDuration,
}

/// Flags of the connection to NATS.
#[derive(Debug, Clone, Args)]
pub(crate) struct NatsArgs {
    /// File with the credentials of a NATS user
    #[arg(
        long = "nats-creds",
        value_name = "PATH",
        env = "ALLSTOP_NATS_CREDS",
        help_heading = "Cluster",
        hide = !HAS_NATS,
        global = true
    )]
    pub(crate) creds: Option<PathBuf>,
    /// File with trusted CA certificates, for servers with TLS (`tls://HOST:PORT`)
    #[arg(
        long = "nats-ca",
        value_name = "PATH",
        help_heading = "Cluster",
        hide = !HAS_NATS,
        global = true
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Prefix of all names on the servers
    #[arg(
        long = "nats-prefix",
        value_name = "NAME",
        default_value = "allstop",
        help_heading = "Cluster",
        hide = !HAS_NATS,
        global = true
    )]
    pub(crate) prefix: String,
    /// Servers that keep each record: 1, 3 or 5. Used only when the store is created
    #[arg(long = "nats-replicas", value_name = "N", default_value_t = 1, value_parser = replicas, help_heading = "Cluster", hide = !HAS_NATS, global = true)]
    pub(crate) replicas: usize,
}

fn replicas(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ (1 | 3 | 5)) => Ok(count),
        _ => Err("expected 1, 3 or 5".to_owned()),
    }
}

/// Agent that runs tasks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TaskAgent {
    /// The agent of the configuration: its model and its tools. A task is a turn, and its context is a session
    Model,
    /// Echoes the text of the message; needs no model
    Echo,
}
