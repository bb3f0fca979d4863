//! The start of the server: agent, tasks, listener.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AgentDescription, ServerOptions, agent_card, grpc_router, http_router, restricted,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{HumanDuration, error_chain};
use allstop_runtime::System;
use allstop_scope::{Scope, ScopeOptions, WorkSpec};
use allstop_task::{TaskManager, TaskOptions, WhenFull};
use anyhow::Context as _;
use tokio::net::TcpListener;

use super::access::ServerAccess;
use super::agent::{AgentChoice, OpenAgent};
use super::health::{self, Readiness};
use super::metrics::TaskMetrics;
use super::observer::ServerObserver;
use super::push;
use super::traces::TraceExporter;
use crate::args::ServeArgs;
use crate::error::CliError;

/// A server that takes requests.
pub(super) struct RunningServer {
    pub(super) root: Scope,
    pub(super) manager: TaskManager,
    /// Holds the executions.
    pub(super) tasks: Scope,
    /// Exporter of traces, if they are wanted.
    pub(super) traces: Option<TraceExporter>,
    /// Holds the sessions and the background work of the agent.
    pub(super) agent: Scope,
    /// Sessions, tools and servers of the agent, if it has any.
    pub(super) system: Option<System>,
    pub(super) connections: Scope,
    /// Holds the deliveries of push notifications.
    pub(super) push: Scope,
    pub(super) readiness: Readiness,
    /// Time that running tasks have to end by themselves, before they are stopped.
    pub(super) drain: Option<Duration>,
    /// Lines for the user, one for each address.
    pub(super) addresses: String,
}

/// Binds an address.
async fn bind(address: SocketAddr, flag: &str) -> Result<(TcpListener, SocketAddr), CliError> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        CliError::failure(format!("cannot listen on {address}: {error}")).hint(format!(
            "another program may use the port: choose another with {flag}"
        ))
    })?;
    let address = listener.local_addr().context("the address of the server")?;
    Ok((listener, address))
}

/// Opens the agent, its tasks and the listener.
pub(super) async fn open_server(
    root: Scope,
    args: ServeArgs,
    agent: AgentChoice,
) -> Result<RunningServer, CliError> {
    let access = ServerAccess::open(&root, &args).await?;
    let (listener, address) = bind(args.listen, "--listen").await?;
    let grpc = match args.access.grpc_listen {
        Some(address) => Some(bind(address, "--grpc-listen").await?),
        None => None,
    };
    let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
    let agent_scope = child("agent").context("a scope for the agent")?;
    let OpenAgent {
        name,
        description,
        parts,
        log,
        system,
    } = agent.open(agent_scope.clone()).await?;
    let metrics = TaskMetrics::default();
    let traces = args.otlp.as_deref().map(TraceExporter::new).transpose()?;
    let options = TaskOptions {
        running_max: args.max_tasks.map(NonZeroUsize::get),
        running_per_owner_max: args.max_tasks_per_user.map(NonZeroUsize::get),
        when_full: args
            .queue
            .map_or(WhenFull::Refuse, |len_max| WhenFull::Queue { len_max }),
        inactivity_max: args.inactivity.map(|HumanDuration(max)| max),
        execution_max: args.task_timeout.map(|HumanDuration(max)| max),
        observer: Some(Arc::new(ServerObserver {
            metrics: metrics.clone(),
            traces: traces.clone(),
        })),
        ..TaskOptions::default()
    };
    let tasks = child("tasks").context("a scope for the tasks")?;
    let connections = child("connections").context("a scope for the connections")?;
    let manager =
        TaskManager::open(Arc::clone(&log), tasks.clone(), Arc::new(parts), options).await;
    let manager = manager.map_err(|error| {
        let error = CliError::failure(format!("the tasks of the store: {}", error_chain(&error)));
        error.hint("a server needs a store of its own: --store FILE, or --store :memory:")
    })?;
    let push_scope = child("push").context("a scope for the push notifications")?;
    let push = push::open(&args, &manager, &log, &push_scope).await?;
    let readiness = Readiness::default();
    let grpc_address = grpc.as_ref().map_or(address, |(_, address)| *address);
    let (scheme, tls) = (access.url_scheme(), access.tls.clone());
    let card = agent_card(&AgentDescription {
        name: name.to_owned(),
        description,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        http_url: format!("{scheme}://{address}"),
        grpc_url: Some(match &tls {
            Some(_) => format!("https://{grpc_address}"),
            None => grpc_address.to_string(),
        }),
    });
    let (card, service) = access.describe(card, A2aService::new(manager.clone()).push(push), &args);
    let service = Arc::new(service);
    let router = http_router(&service, card, access.control.clone())
        .merge(restricted(metrics.router(), access.control.clone()))
        .merge(health::router(readiness.clone()));
    let grpc_routes = grpc_router(&service, access.control);
    let mut addresses = format!("listening on {scheme}://{address}\n");
    let listeners = match grpc {
        None => vec![(listener, router.merge(grpc_routes))],
        Some((grpc_listener, grpc_address)) => {
            let _infallible = writeln!(addresses, "listening for gRPC on {grpc_address}");
            vec![(listener, router), (grpc_listener, grpc_routes)]
        }
    };
    for (listener, router) in listeners {
        let spec = WorkSpec::new(ItemKind::Future, "listener");
        let (accepting, tls) = (connections.clone(), tls.clone());
        let options = ServerOptions {
            tls,
            ..ServerOptions::default()
        };
        let listening = connections.spawn(spec, move |_cx| {
            allstop_a2a::serve(listener, router, accepting, options)
        });
        listening.context("a scope for the connections")?;
    }
    readiness.set(true);
    Ok(RunningServer {
        root,
        manager,
        tasks,
        traces,
        agent: agent_scope,
        system,
        connections,
        push: push_scope,
        readiness,
        drain: args.drain.map(Duration::from),
        addresses,
    })
}
