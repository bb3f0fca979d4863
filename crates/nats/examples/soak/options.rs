//! Options of the command line.

use std::net::SocketAddr;
use std::time::Duration;

use allstop_core::HumanDuration;
use clap::{Args, Parser};

#[derive(Debug, Parser)]
#[command(
    name = "soak",
    about = "Kills and pauses the parts of a cluster while it works, and checks its account"
)]
pub(crate) enum SoakCommand {
    /// Runs the soak.
    Run(SoakOptions),
    /// Runs a worker of the soak.
    #[command(hide = true)]
    Worker(WorkerOptions),
    /// Runs a keeper of a worker.
    #[command(hide = true)]
    Keep,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SoakOptions {
    /// Number of tasks.
    #[arg(long, default_value_t = 5_000)]
    pub tasks: usize,
    /// Number of tasks at the same time.
    #[arg(long, default_value_t = 64)]
    pub clients: usize,
    /// Number of workers, each for 16 tasks.
    #[arg(long, default_value_t = 4)]
    pub workers: usize,
    /// Duration of the longest task; the shortest takes a fiftieth of it. With 0 the tasks end at once.
    #[arg(long, default_value = "5s")]
    pub longest: HumanDuration,
    /// Time after which other workers take over the tasks of a silent worker.
    #[arg(long, default_value = "8s")]
    pub lease: HumanDuration,
    /// Percentage of tasks that are stopped.
    #[arg(long, default_value_t = 10)]
    pub stops: u64,
    /// Number of workers that are killed.
    #[arg(long, default_value_t = 60)]
    pub worker_kills: usize,
    /// Number of workers that are paused for longer than their lease.
    #[arg(long, default_value_t = 10)]
    pub worker_pauses: usize,
    /// Number of servers that are killed and started again.
    #[arg(long, default_value_t = 10)]
    pub server_kills: usize,
    /// Number of servers that are paused for a moment.
    #[arg(long, default_value_t = 6)]
    pub server_pauses: usize,
    /// Number of times without a majority of the servers, for longer than a lease.
    #[arg(long, default_value_t = 2)]
    pub outages: usize,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerOptions {
    #[arg(long)]
    pub servers: String,
    #[arg(long)]
    pub ledger: SocketAddr,
    #[arg(long)]
    pub lease: HumanDuration,
}

impl SoakOptions {
    pub(crate) fn lease(&self) -> Duration {
        self.lease.0
    }
}
