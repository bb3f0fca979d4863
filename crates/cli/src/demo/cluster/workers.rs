//! The workers, which run the tasks, and the front end, which accepts tasks: this program in other processes.

use std::time::Duration;

use allstop_core::HumanDuration;

use super::nats_servers::SERVERS;
use super::process::{DemoLauncher, DemoProcess};
use super::script::DemoFiles;
use crate::error::CliError;

/// Number of workers at the start.
const WORKERS: usize = 3;

/// Maximum tasks that a worker runs at a time. The limit is low, so that no worker gets all tasks.
const CONCURRENCY: usize = 3;

/// Time that a stop waits before it uses force. It is short, because the shells of the demo ignore SIGTERM in any case.
const GRACE: Duration = Duration::from_millis(500);

/// Lease of the workers: a worker that cannot renew its lease within this time stops its tasks. The lease must be
/// longer than an election of another leader. This takes the servers up to 9 s, and no worker can renew its lease
/// meanwhile.
pub(super) const LEASE: Duration = Duration::from_secs(13);

/// Maximum wait until a worker or the front end is ready. Usually this takes less than a second.
const READY_MAX: Duration = Duration::from_secs(15);

/// The workers and the front end.
pub(super) struct DemoWorkers {
    pub(super) workers: Vec<DemoProcess>,
    pub(super) front: DemoProcess,
    /// Address of the front end, `http://127.0.0.1:PORT`.
    pub(super) address: String,
}

impl DemoWorkers {
    /// Starts all processes, and waits until they are ready.
    pub(super) async fn start(
        launcher: &DemoLauncher,
        files: &DemoFiles,
        servers: &str,
    ) -> Result<Self, CliError> {
        let shared: Vec<String> = [
            ("--store", servers.to_owned()),
            ("--nats-replicas", SERVERS.to_string()),
            ("--lease", HumanDuration(LEASE).to_string()),
            ("--grace", HumanDuration(GRACE).to_string()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        let start = |name: &str, args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned());
            launcher.start(name, &launcher.allstop, args.chain(shared.iter().cloned()))
        };
        // The front end starts first, because it creates the streams at the NATS servers.
        let mut front = start("front end", &["serve", "--listen", "127.0.0.1:0"])?;
        front.started().await?;
        let address = front.line("listening on ", READY_MAX).await?;
        let model = format!("script:{}", files.script().display());
        let concurrency = CONCURRENCY.to_string();
        let args = [
            "worker",
            "--yes",
            "--model",
            &model,
            "--concurrency",
            &concurrency,
        ];
        let workers = (1..=WORKERS).map(|number| start(&format!("worker-{number}"), &args));
        let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
        for worker in &mut workers {
            worker.started().await?;
            worker.line("working, ", READY_MAX).await?;
        }
        Ok(Self {
            workers,
            front,
            address,
        })
    }

    /// Index of the worker whose process tree contains this process.
    pub(super) async fn of_process(&self, pid: u32) -> Option<usize> {
        for (at, worker) in self.workers.iter().enumerate() {
            let tree = worker.tree().await;
            if tree.iter().any(|member| member.identity.pid == pid) {
                return Some(at);
            }
        }
        None
    }
}
