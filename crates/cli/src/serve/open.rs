//! The start of the server: opens the agent, the tasks and the listener.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::counted::counted;
use allstop_core::{HumanDuration, error_chain};
use allstop_process::Keepers;
use allstop_runtime::{System, SystemStore};
use allstop_scope::{Scope, ScopeOptions};
use allstop_task::{AdmissionLimits, TaskManager, TaskOptions, TaskParts, WhenFull};
use allstop_terminal::OutputQueue;
use anyhow::Context as _;

use super::agent::{AgentChoice, OpenAgent};
use super::cluster::{self, StoreConnection};
use super::endpoint::{self, BoundEndpoint, Served};
use super::health::Readiness;
use super::metrics::TaskMetrics;
use super::observer::ServerObserver;
use super::push;
use super::retention;
use super::store_probe::StoreProbe;
use super::unreadable_tasks;
use crate::args::{EndpointArgs, ExecutionArgs};
use crate::error::CliError;
use crate::telemetry::TraceExporter;
use allstop_remote::OwnedSessions;

/// A server that accepts requests.
pub(super) struct RunningServer {
    pub(super) manager: TaskManager,
    /// Scope of the executions (running tasks).
    pub(super) tasks: Scope,
    /// Scope of the agent's sessions and background work.
    pub(super) agent: Scope,
    /// Sessions, tools and MCP servers of the agent, if it has any.
    pub(super) system: Option<System>,
    pub(super) store: SystemStore,
    pub(super) connections: Scope,
    /// Scope of the push notification deliveries.
    pub(super) push: Scope,
    pub(super) readiness: Readiness,
    /// Time for running tasks to end by themselves, before the server stops them.
    pub(super) drain: Option<Duration>,
    /// Lines for the user, one for each address.
    pub(super) addresses: String,
}

/// Flags of a server or a worker.
pub(super) struct ServerArgs {
    /// `None` for a worker, which has no listener.
    pub(super) endpoint: Option<EndpointArgs>,
    pub(super) execution: ExecutionArgs,
    /// Address of a worker's metrics.
    pub(super) metrics_listen: Option<SocketAddr>,
    /// Keepers for the agent's commands: small processes that can kill the whole process tree of a command.
    pub(super) keepers: Arc<Keepers>,
    /// Output queue for lines about the lease of a worker.
    pub(super) stderr: OutputQueue,
    /// Exporter of traces, if enabled.
    pub(super) traces: Option<TraceExporter>,
}

impl ServerArgs {
    /// Files with secrets that the flags name. The file tools of the agents must not reach them.
    pub(super) fn secret_files(&self) -> Vec<PathBuf> {
        let execution = &self.execution;
        let own = [&execution.cluster.servers.creds, &execution.model.config];
        let mut files: Vec<PathBuf> = own.into_iter().flatten().cloned().collect();
        if let Some(endpoint) = &self.endpoint {
            let access = &endpoint.access;
            let of_access = [
                &access.token_file,
                &endpoint.push_secret_file,
                &access.tls_cert,
                &access.tls_key,
            ];
            files.extend(of_access.into_iter().flatten().cloned());
            files.extend(access.jwks.as_ref().map(PathBuf::from));
        }
        files.retain(|file| file.exists());
        files
    }

    /// Number of tasks that this process runs concurrently as a node of a cluster.
    pub(super) fn concurrency(&self) -> usize {
        let default = match self.endpoint {
            Some(_) => 0,
            None => cluster::CONCURRENCY,
        };
        self.execution.cluster.concurrency.unwrap_or(default)
    }
}

/// Opens the agent, its tasks and the listener.
pub(super) async fn open_server(
    root: Scope,
    args: ServerArgs,
    agent: AgentChoice,
    sessions: OwnedSessions,
) -> Result<RunningServer, CliError> {
    let bound = match &args.endpoint {
        Some(endpoint) => Some(BoundEndpoint::bind(&root, endpoint).await?),
        None => None,
    };
    let metrics_bound = match args.metrics_listen {
        Some(address) => Some(endpoint::bind(address, "--metrics-listen").await?),
        None => None,
    };
    let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
    let agent_scope = child("agent").context("a scope for the agent")?;
    // The store has a separate scope, so that the receipts of stops do not list the work of the store.
    let store_scope = child("store").context("a scope for the store")?;
    let concurrency = args.concurrency();
    if concurrency > 0 {
        cluster::end_trees_with_lease(&args.keepers);
    }
    let OpenAgent {
        name,
        description,
        parts,
        store,
        system,
        conversations,
    } = agent
        .open(agent_scope.clone(), &store_scope, &sessions)
        .await?;
    let metrics = TaskMetrics::default();
    let execution = &args.execution;
    let options = task_limits(execution, concurrency)
        .observer(Arc::new(ServerObserver {
            metrics: metrics.clone(),
            traces: args.traces.clone(),
        }))
        // With a store in memory, a task that stays in the queue would be lost without an end.
        .keeps_queue(!store.log().files().is_empty());
    let tasks = child("tasks").context("a scope for the tasks")?;
    let connections = child("connections").context("a scope for the connections")?;
    let push_scope = child("push").context("a scope for the push notifications")?;
    let log = Arc::clone(store.log());
    let stderr = args.stderr.clone();
    let scopes = (tasks.clone(), store_scope);
    let manager = open_manager(&store, &args, scopes, parts, options).await?;
    unreadable_tasks::report(&manager, &stderr);
    let probe = StoreProbe::start(Arc::clone(&log), &connections, stderr)
        .context("a scope for the probe of the store")?;
    let readiness = Readiness::new(StoreConnection::of(&store), probe);
    let mut retention = retention::of(execution, conversations);
    let addresses = if let (Some(bound), Some(endpoint)) = (bound, &args.endpoint) {
        // A cluster has no push notifications, because every front end would send each notification.
        let push = match store.nats() {
            Some(_) => None,
            None => Some(push::open(endpoint, &manager, &log, &push_scope).await?),
        };
        retention::attach(&mut retention, push.as_ref());
        let served = Served {
            name,
            description,
            manager: &manager,
            push,
            metrics: match store.nats() {
                Some(_) => metrics.router_of_front_end(),
                None => metrics.router(),
            },
            readiness: &readiness,
            connections: &connections,
        };
        bound.serve(served, endpoint, execution)?
    } else {
        let metrics = match metrics_bound {
            Some(bound) => {
                let router = metrics.router();
                endpoint::serve_metrics(bound, router, &readiness, &connections)?
            }
            None => String::new(),
        };
        let tasks = counted(concurrency as u64, "task", "tasks");
        format!("{metrics}working, at most {tasks} at a time\n")
    };
    retention::start(&manager, retention, metrics, &connections)
        .context("a scope for the removal of ended tasks")?;
    readiness.set(true);
    Ok(RunningServer {
        manager,
        tasks,
        agent: agent_scope,
        system,
        store,
        connections,
        push: push_scope,
        readiness,
        drain: execution.drain.map(Duration::from),
        addresses,
    })
}

/// Opens the tasks of the store, alone or as a node of a cluster.
async fn open_manager(
    store: &SystemStore,
    args: &ServerArgs,
    (tasks, store_scope): (Scope, Scope),
    parts: TaskParts,
    options: TaskOptions,
) -> Result<TaskManager, CliError> {
    let (log, parts) = (Arc::clone(store.log()), Arc::new(parts));
    let Some(nats) = store.nats() else {
        let manager = TaskManager::open(log, tasks, parts, options).await;
        return manager.map_err(|error| {
            let chain = error_chain(&error);
            let error = CliError::failure(format!("cannot open the tasks of the store: {chain}"));
            error.hint("a server needs its own store: --store FILE, or --store :memory:")
        });
    };
    let admission = match args.endpoint {
        Some(_) => cluster::admission(&args.execution),
        // Workers accept no messages.
        None => AdmissionLimits::default(),
    };
    let (keepers, stderr) = (Arc::clone(&args.keepers), args.stderr.clone());
    let concurrency = args.concurrency();
    let node = cluster::node(
        nats,
        &args.execution,
        concurrency,
        admission,
        keepers,
        stderr,
    );
    // A forced stop of the tasks must not end the loop that returns the lease.
    let node = node.await?.scope(store_scope);
    let manager = TaskManager::join(log, node, tasks, parts, options);
    Ok(manager.context("a scope for the tasks")?)
}

/// Limits of the tasks that this process runs.
fn task_limits(execution: &ExecutionArgs, concurrency: usize) -> TaskOptions {
    TaskOptions::default()
        .running_max(cluster::running_max(execution, concurrency))
        .running_per_owner_max(execution.max_tasks_per_user.map(NonZeroUsize::get))
        .when_full(
            execution
                .queue
                .map_or(WhenFull::Refuse, |len_max| WhenFull::Queue { len_max }),
        )
        .inactivity_max(execution.inactivity.map(|HumanDuration(max)| max))
        .execution_max(execution.task_timeout.map(|HumanDuration(max)| max))
}
