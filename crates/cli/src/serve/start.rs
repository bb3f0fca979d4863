//! The start of the server: store, tasks, listener.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AgentDescription, Authenticator, NoAuthentication, ServerOptions, TokenFile,
    agent_card, grpc_router, http_router, require_bearer_token,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{HumanDuration, error_chain};
use allstop_runtime::{StoreChoice, open_store};
use allstop_scope::{Scope, ScopeOptions, WorkSpec};
use allstop_task::{TaskManager, TaskOptions, TaskParts, WhenFull};
use anyhow::Context as _;
use tokio::net::TcpListener;

use super::echo::EchoAgent;
use super::health::{self, Readiness};
use super::push;
use crate::args::{ServeArgs, ServedAgent};
use crate::error::CliError;

/// Interval at which the token file is looked at: a new token is valid, and a removed one is not, a second later.
const TOKENS_LOOK: Duration = Duration::from_secs(1);

/// A server that takes requests.
pub(super) struct RunningServer {
    pub(super) manager: TaskManager,
    pub(super) connections: Scope,
    pub(super) push: Scope,
    pub(super) readiness: Readiness,
    pub(super) address: SocketAddr,
}

/// The authentication of the server: by tokens if there is a file, and none otherwise.
fn authenticator(root: &Scope, args: &ServeArgs) -> Result<Arc<dyn Authenticator>, CliError> {
    let Some(path) = &args.token_file else {
        return Ok(Arc::new(NoAuthentication));
    };
    let tokens = TokenFile::open(path).map_err(|error| CliError::usage(error_chain(&error)))?;
    let watched = tokens.clone();
    let spec = WorkSpec::new(ItemKind::Thread, "token file");
    let watching = root.spawn_blocking(spec, move |cx| {
        while cx.checkpoint("token file").is_ok() {
            if let Err(error) = watched.reload() {
                tracing::warn!(error = error_chain(&error), "the tokens are as before");
            }
            std::thread::park_timeout(TOKENS_LOOK);
        }
    });
    watching.context("a thread for the token file")?;
    Ok(Arc::new(tokens))
}

/// Opens the store, its tasks and the listener.
pub(super) async fn start(
    root: &Scope,
    args: &ServeArgs,
    store: StoreChoice,
) -> Result<RunningServer, CliError> {
    let authenticator = authenticator(root, args)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|error| {
        CliError::failure(format!("cannot listen on {}: {error}", args.listen))
            .hint("another program may use the port: choose another with --listen")
    })?;
    let address = listener.local_addr().context("the address of the server")?;
    let log = open_store(&store).await.context("the store")?;
    let options = TaskOptions {
        running_max: args.max_tasks.map(NonZeroUsize::get),
        running_per_owner_max: args.max_tasks_per_user.map(NonZeroUsize::get),
        when_full: args
            .queue
            .map_or(WhenFull::Refuse, |len_max| WhenFull::Queue { len_max }),
        inactivity_max: args.inactivity.map(|HumanDuration(max)| max),
        execution_max: args.task_timeout.map(|HumanDuration(max)| max),
        ..TaskOptions::default()
    };
    let parts = match args.agent {
        ServedAgent::Echo => TaskParts::of(EchoAgent),
    };
    let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
    let tasks = child("tasks").context("a scope for the tasks")?;
    let connections = child("connections").context("a scope for the connections")?;
    let manager = TaskManager::open(Arc::clone(&log), tasks, Arc::new(parts), options).await;
    let manager = manager.context("the tasks of the store")?;
    let push_scope = child("push").context("a scope for the push notifications")?;
    let push = push::open(args, &manager, &log, &push_scope).await?;
    let readiness = Readiness::default();
    let mut card = agent_card(&AgentDescription {
        name: args.agent.to_string(),
        description: "Answers each message with its own text.".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        http_url: format!("http://{address}"),
        grpc_url: Some(address.to_string()),
    });
    if args.token_file.is_some() {
        require_bearer_token(&mut card);
    }
    let service = Arc::new(A2aService::new(manager.clone()).push(push));
    let router = http_router(&service, card, Arc::clone(&authenticator))
        .merge(grpc_router(&service, authenticator))
        .merge(health::router(readiness.clone()));
    let spec = WorkSpec::new(ItemKind::Future, "listener");
    let accepting = connections.clone();
    let listening = connections.spawn(spec, move |_cx| {
        allstop_a2a::serve(listener, router, accepting, ServerOptions::default())
    });
    listening.context("a scope for the connections")?;
    readiness.set(true);
    Ok(RunningServer {
        manager,
        connections,
        push: push_scope,
        readiness,
        address,
    })
}
