//! A store on several machines: its flags, and this process as a node.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use allstop_core::{HumanDuration, error_chain};
use allstop_nats::{NatsLog, NatsOptions};
use allstop_process::{Keepers, this_process};
use allstop_runtime::StoreChoice;
use allstop_scope::FORCE_MAX;
use allstop_task::ClusterOptions;

use crate::args::{ExecutionArgs, NatsArgs};
use crate::error::CliError;

/// Tasks that a worker runs at the same time by default: most of them wait for a model.
pub(super) const CONCURRENCY: usize = 16;

/// The servers that `--store` names; `None`: it names no servers.
pub(super) fn store(args: &ExecutionArgs) -> Result<Option<StoreChoice>, CliError> {
    let Some(mut options) = nats_options(args.store.store.as_deref(), &args.cluster.servers) else {
        if args.cluster.concurrency.is_some() {
            return Err(
                CliError::usage("--concurrency is for a store on several machines")
                    .hint("name its servers: --store nats://HOST:4222; on one machine the limit is --max-tasks"),
            );
        }
        return Ok(None);
    };
    let HumanDuration(lease) = args.cluster.lease;
    let grace = args
        .grace
        .map_or(allstop_scope::GRACE_DEFAULT, |HumanDuration(grace)| grace);
    let shortest = (grace + FORCE_MAX) * 2;
    if lease < shortest {
        return Err(CliError::usage(format!(
            "a lease of {} is too short: the work of a worker needs {} to stop",
            HumanDuration(lease),
            HumanDuration(grace + FORCE_MAX)
        ))
        .hint(format!(
            "choose --lease {} or longer, or a shorter --grace",
            HumanDuration(shortest)
        )));
    }
    // So that a session passes on with the tasks of its worker.
    options.lock_ttl = lease;
    Ok(Some(StoreChoice::Nats(Box::new(options))))
}

/// The connection that `--store` and its flags describe; `None`: `--store` names no servers.
pub(crate) fn nats_options(store: Option<&Path>, args: &NatsArgs) -> Option<NatsOptions> {
    let servers = store?.to_str()?;
    if !(servers.starts_with("nats://") || servers.starts_with("tls://")) {
        return None;
    }
    let mut options = NatsOptions::new(servers);
    options.credentials.clone_from(&args.creds);
    options.authorities.clone_from(&args.ca);
    options.prefix.clone_from(&args.prefix);
    options.replicas = args.replicas;
    Some(options)
}

/// This process as a node of the cluster.
pub(super) async fn node(
    log: &NatsLog,
    args: &ExecutionArgs,
    concurrency: usize,
    keepers: Arc<Keepers>,
) -> Result<ClusterOptions, CliError> {
    let link = log
        .link()
        .await
        .map_err(|error| CliError::failure(error_chain(&error)))?;
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let on_renewal = move |left| {
        if let Err(error) = keepers.put_off_deadline(left) {
            tracing::warn!(%error, "the processes of tasks may outlive the lease of a paused worker");
        }
    };
    Ok(ClusterOptions {
        on_renewal: Some(Arc::new(on_renewal)),
        // Code that cannot be stopped ends with its process: from here on the tasks are another worker's.
        on_overdue: Some(Arc::new(|| std::process::abort())),
        concurrency,
        lease: args.cluster.lease.0,
        name: format!("{host}, pid {}", this_process().pid).into(),
        ..ClusterOptions::new(Arc::new(link))
    })
}

/// Limit of the executions of this process.
pub(super) fn running_max(args: &ExecutionArgs, concurrency: usize) -> Option<usize> {
    let max = args.max_tasks.map(NonZeroUsize::get);
    match concurrency {
        0 => max,
        concurrency => Some(max.map_or(concurrency, |max| max.min(concurrency))),
    }
}
