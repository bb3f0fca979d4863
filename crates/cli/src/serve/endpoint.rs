//! Addresses of a server, and the listeners on these addresses.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(feature = "grpc")]
use allstop_a2a::grpc_router;
use allstop_a2a::{
    A2aService, AgentDescription, PLACE_LIMITS, PushNotifications, ServerOptions, agent_card,
    http_router, restricted,
};
use allstop_core::receipt::ItemKind;
use allstop_host::Places;
use allstop_scope::{Scope, WorkSpec};
use allstop_task::TaskManager;
use anyhow::Context as _;
use axum::Router;
use tokio::net::TcpListener;

use super::access::ServerAccess;
use super::health::{self, Readiness};
use crate::args::{EndpointArgs, ExecutionArgs};
use crate::descriptors;
use crate::error::CliError;

/// Bound addresses, before requests are accepted.
pub(super) struct BoundEndpoint {
    access: ServerAccess,
    listener: (TcpListener, SocketAddr),
    grpc: Option<(TcpListener, SocketAddr)>,
}

/// The parts of the server that the routes of an endpoint need.
pub(super) struct Served<'a> {
    pub(super) name: &'static str,
    pub(super) description: String,
    pub(super) manager: &'a TaskManager,
    /// `None` if push notifications are unavailable.
    pub(super) push: Option<PushNotifications>,
    /// Router of `/metrics`.
    pub(super) metrics: Router,
    pub(super) readiness: &'a Readiness,
    /// Scope of the connections.
    pub(super) connections: &'a Scope,
}

/// Without the feature `grpc`, the server has no gRPC routes, and `--grpc-listen` is rejected.
#[cfg(not(feature = "grpc"))]
fn grpc_router(_service: &Arc<A2aService>, _access: allstop_a2a::AccessControl) -> axum::Router {
    axum::Router::new()
}

pub(crate) async fn bind(
    address: SocketAddr,
    flag: &str,
) -> Result<(TcpListener, SocketAddr), CliError> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        CliError::failure(format!("cannot listen on {address}: {error}")).hint(format!(
            "another program may use the port; choose another port with {flag}"
        ))
    })?;
    let address = listener.local_addr().context("the address of the server")?;
    Ok((listener, address))
}

/// Starts to answer requests for metrics and for the health of a worker. Returns a line for the user.
pub(super) fn serve_metrics(
    bound: (TcpListener, SocketAddr),
    metrics: Router,
    readiness: &Readiness,
    connections: &Scope,
) -> Result<String, CliError> {
    let (listener, address) = bound;
    let router = metrics.merge(health::router(readiness.clone()));
    let (spec, accepting) = (
        WorkSpec::new(ItemKind::Future, "listener"),
        connections.clone(),
    );
    let listening = connections.spawn(spec, move |_cx| {
        allstop_a2a::serve(listener, router, accepting, ServerOptions::default())
    });
    listening.context("a scope for the connections")?;
    Ok(format!("metrics on http://{address}/metrics\n"))
}

impl BoundEndpoint {
    /// Reads the access files, and binds the addresses.
    pub(super) async fn bind(root: &Scope, args: &EndpointArgs) -> Result<Self, CliError> {
        let access = ServerAccess::open(root, &args.access).await?;
        let listener = bind(args.listen, "--listen").await?;
        let grpc = match args.grpc_listen {
            Some(address) => Some(bind(address, "--grpc-listen").await?),
            None => None,
        };
        Ok(Self {
            access,
            listener,
            grpc,
        })
    }

    /// Starts to accept requests. Returns lines for the user, one for each address.
    pub(super) fn serve(
        self,
        served: Served<'_>,
        endpoint: &EndpointArgs,
        execution: &ExecutionArgs,
    ) -> Result<String, CliError> {
        let Self {
            access,
            listener: (listener, address),
            grpc,
        } = self;
        let grpc_address = grpc.as_ref().map_or(address, |(_, address)| *address);
        let (scheme, tls) = (access.url_scheme(), access.tls.clone());
        let card = agent_card(&AgentDescription {
            name: served.name.to_owned(),
            description: served.description,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            http_url: format!("{scheme}://{address}"),
            grpc_url: cfg!(feature = "grpc").then(|| match &tls {
                Some(_) => format!("https://{grpc_address}"),
                None => grpc_address.to_string(),
            }),
        });
        let mut service = A2aService::new(served.manager.clone());
        if let Some(push) = served.push {
            service = service.push(push);
        }
        let (card, service) = access.describe(card, service, endpoint, execution);
        let service = Arc::new(service);
        let router = http_router(&service, card, access.control.clone())
            .merge(restricted(served.metrics, access.control.clone()))
            .merge(health::router(served.readiness.clone()));
        let grpc_routes = grpc_router(&service, access.control);
        let mut addresses = format!("listening on {scheme}://{address}\n");
        let listeners = match grpc {
            None => vec![(listener, router.merge(grpc_routes))],
            Some((grpc_listener, grpc_address)) => {
                let _infallible = writeln!(addresses, "listening for gRPC on {grpc_address}");
                vec![(listener, router), (grpc_listener, grpc_routes)]
            }
        };
        let limits = PLACE_LIMITS
            .connections_max(descriptors::connections_max(PLACE_LIMITS.connections_max));
        let options = ServerOptions::default()
            .places(Places::new(limits))
            .tls(tls);
        for (listener, router) in listeners {
            let spec = WorkSpec::new(ItemKind::Future, "listener");
            let (accepting, options) = (served.connections.clone(), options.clone());
            let listening = served.connections.spawn(spec, move |_cx| {
                allstop_a2a::serve(listener, router, accepting, options)
            });
            listening.context("a scope for the connections")?;
        }
        Ok(addresses)
    }
}
