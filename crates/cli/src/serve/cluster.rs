//! A store on NATS servers, which several machines share: its flags, and this process as a node of the cluster.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::PLACE_LIMITS;
use allstop_core::HumanDuration;
use allstop_nats::{NatsLog, NatsOptions};
use allstop_process::{Keepers, this_process};
use allstop_runtime::{AgentExecutorOptions, StartError, StoreChoice, SystemStore};
use allstop_scope::FORCE_MAX;
use allstop_task::{AdmissionLimits, ClusterOptions, LeaseChange};
use allstop_terminal::{OutputPriority, OutputQueue};
use tokio::sync::watch;

use crate::args::{ExecutionArgs, NatsArgs};
use crate::descriptors;
use crate::error::CliError;

/// Default number of tasks that a worker runs concurrently. The number can be high, because most tasks wait for a
/// model.
pub(super) const CONCURRENCY: usize = 16;

/// The store on the NATS servers that `--store` names; `None` if the flag names no servers.
pub(super) fn store(args: &ExecutionArgs) -> Result<Option<StoreChoice>, CliError> {
    let Some(mut options) = nats_options(args.store.store.as_deref(), &args.cluster.servers) else {
        if args.cluster.concurrency.is_some() {
            return Err(CliError::usage("--concurrency needs a NATS store").hint(
                "name the NATS servers: --store nats://HOST:4222; without NATS, use --max-tasks",
            ));
        }
        return Ok(None);
    };
    let HumanDuration(lease) = args.cluster.lease;
    let grace = args.grace.or_default();
    let shortest = (grace + FORCE_MAX) * 2;
    if lease < shortest {
        return Err(CliError::usage(format!(
            "a lease of {} is too short: the stop of a worker's tasks takes up to {}",
            HumanDuration(lease),
            HumanDuration(grace + FORCE_MAX)
        ))
        .hint(format!(
            "choose --lease {} or longer, or a shorter --grace",
            HumanDuration(shortest)
        )));
    }
    // The locks of a worker's sessions expire together with its lease. So another worker can take over the tasks and
    // their sessions.
    options.lock_ttl = lease;
    Ok(Some(StoreChoice::Nats(Box::new(options))))
}

/// Options of the connection to NATS, from `--store` and the other flags; `None` if `--store` names no servers.
pub(crate) fn nats_options(store: Option<&Path>, args: &NatsArgs) -> Option<NatsOptions> {
    let servers = store?.to_str()?;
    if !names_servers(servers) {
        return None;
    }
    let mut options = NatsOptions::new(servers);
    options.credentials.clone_from(&args.creds);
    options.authorities.clone_from(&args.ca);
    options.prefix.clone_from(&args.prefix);
    options.replicas = args.replicas;
    Some(options)
}

/// True if the value of `--store` names NATS servers. URL schemes are case-insensitive.
pub(crate) fn names_servers(store: &str) -> bool {
    let scheme = store.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        ["nats", "tls"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

/// State of the connection to the servers of the store.
pub(super) struct StoreConnection {
    /// `None` if the store is on this machine.
    is_connected: Option<watch::Receiver<bool>>,
    was_connected: bool,
}

impl StoreConnection {
    pub(super) fn of(store: &SystemStore) -> Self {
        Self {
            is_connected: store.nats().map(NatsLog::connection),
            was_connected: true,
        }
    }

    /// True if the connection exists, or if the store needs no connection.
    pub(super) fn is_there(&self) -> bool {
        let is_connected = self.is_connected.as_ref();
        is_connected.is_none_or(|is_connected| *is_connected.borrow())
    }

    /// Waits until the connection is lost or restored. Returns a line for people.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn changed(&mut self) -> &'static str {
        let Some(receiver) = &mut self.is_connected else {
            return std::future::pending().await;
        };
        let was = self.was_connected;
        let is = receiver.wait_for(|is| *is != was).await.map(|is| *is);
        // The store is closed, so the state of the connection no longer changes.
        let Ok(is) = is else {
            return std::future::pending().await;
        };
        self.was_connected = is;
        if is {
            "reconnected to NATS"
        } else {
            "lost the connection to NATS; reconnecting. Requests that need NATS fail until then"
        }
    }
}

/// Gives all process trees that start from now on a deadline, which the renewals of the lease postpone. Call this function
/// before the agent is opened: its MCP servers start before the first renewal, and must end with the lease, too.
pub(super) fn end_trees_with_lease(keepers: &Keepers) {
    // There is no deadline as long as the worker has no lease.
    postpone_deadline(keepers, Duration::MAX);
}

fn postpone_deadline(keepers: &Keepers, left: Duration) {
    if let Err(error) = keepers.postpone_deadline(left) {
        tracing::warn!(%error, "the processes of tasks may outlive the lease of a suspended worker");
    }
}

/// Describes a change of the lease: a worker that cannot renew its lease in time stops its tasks.
fn lease_line(change: LeaseChange) -> String {
    match change {
        LeaseChange::Lost { executions: 0 } => "lost the lease; no task was running".to_owned(),
        LeaseChange::Lost { executions: 1 } => "lost the lease; stopping 1 task".to_owned(),
        LeaseChange::Lost { executions } => {
            format!("lost the lease; stopping {executions} tasks")
        }
        LeaseChange::Renewed => "got a new lease".to_owned(),
    }
}

/// This process as a node of the cluster. Changes of its lease are printed to `stderr`.
pub(super) async fn node(
    log: &NatsLog,
    args: &ExecutionArgs,
    concurrency: usize,
    admission: AdmissionLimits,
    keepers: Arc<Keepers>,
    stderr: OutputQueue,
) -> Result<ClusterOptions, CliError> {
    let link = log.link().await.map_err(StartError::from)?;
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let on_renewal = move |left| postpone_deadline(&keepers, left);
    let on_lease_change = move |change| {
        stderr.lines(lease_line(change), OutputPriority::Required);
    };
    Ok(ClusterOptions::new(link)
        .on_renewal(Arc::new(on_renewal))
        .on_lease_change(Arc::new(on_lease_change))
        // The lease is over, so another worker may run the tasks now. Code that could not be stopped ends only with its
        // process, so the process ends itself.
        .on_overdue(Arc::new(|| std::process::abort()))
        .concurrency(concurrency)
        .settles_lost_tasks(true)
        .admission(admission)
        .lease(args.cluster.lease.0)
        .name(format!("{host}, pid {}", this_process().pid)))
}

/// Limits of the tasks that a server of the cluster accepts.
pub(super) fn admission(args: &ExecutionArgs) -> AdmissionLimits {
    AdmissionLimits::default()
        .running_max(args.max_tasks.map(NonZeroUsize::get))
        .running_per_owner_max(args.max_tasks_per_user.map(NonZeroUsize::get))
        .waiting_max(args.queue.unwrap_or(0))
}

/// Maximum number of executions (running tasks) in this process.
pub(super) fn running_max(args: &ExecutionArgs, concurrency: usize) -> usize {
    let sessions = AgentExecutorOptions::default().sessions_open_max;
    let possible = descriptors::running_tasks_max(sessions, PLACE_LIMITS.connections_max);
    let asked = args.max_tasks.map_or(usize::MAX, NonZeroUsize::get);
    let of_worker = if concurrency == 0 {
        usize::MAX
    } else {
        concurrency
    };
    asked.min(of_worker).min(possible)
}
