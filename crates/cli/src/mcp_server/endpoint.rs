//! Endpoints for clients: standard input and output, or streamable HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_a2a::{PLACE_LIMITS, ServerOptions, principal_of_headers, restricted, serve};
use allstop_core::receipt::ItemKind;
use allstop_host::Places;
use allstop_mcp_server::{
    AcceptedHosts, CommandOwner, CommandServer, HTTP_PATH, HttpEnd, http_router, serve_pipes,
};
use allstop_scope::{Scope, WorkSpec};
use anyhow::Context as _;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::args::ServeAccessArgs;
use crate::descriptors;
use crate::error::CliError;
use crate::serve::access::ServerAccess;
use crate::serve::endpoint::bind;
use crate::standard_output::unbuffered_stdout;

/// The endpoint of a running server.
pub(super) enum RunningEndpoint {
    /// The parent process is the only client.
    Stdio(StdioClient),
    Http {
        /// Line for standard output with the address.
        address: String,
        /// Ends the sessions of all clients.
        end: HttpEnd,
    },
}

/// The client on standard input and output.
#[derive(Clone, Default)]
pub(super) struct StdioClient {
    /// Cancelled when the input has ended.
    input_end: CancellationToken,
    /// Cancelled when the client has the last response, or cannot receive it.
    served: CancellationToken,
    /// Reason why the client was not served.
    problem: Arc<OnceLock<String>>,
}

impl RunningEndpoint {
    /// Serves the parent process on standard input and output.
    pub(super) fn on_stdio(server: CommandServer, connections: &Scope) -> Result<Self, CliError> {
        let client = StdioClient::default();
        let (of_work, output) = (client.clone(), unbuffered_stdout()?);
        let spec = WorkSpec::new(ItemKind::Future, "standard input and output");
        let serving = connections.spawn(spec, move |cx| async move {
            let StdioClient {
                input_end,
                served,
                problem,
            } = of_work;
            let _served = served.drop_guard();
            let input = tokio::io::stdin();
            if let Err(why) = serve_pipes(server, input, output, input_end, &cx).await {
                // Cannot fail: only this work sets the problem.
                drop(problem.set(why));
            }
        });
        // The work ends with the connection, and `served` reports its end.
        drop(serving.context("the start of the connection")?);
        Ok(Self::Stdio(client))
    }

    /// Serves HTTP on an address.
    pub(super) async fn on_address(
        server: CommandServer,
        root: &Scope,
        connections: &Scope,
        address: SocketAddr,
        access: &ServeAccessArgs,
    ) -> Result<Self, CliError> {
        let hosts = if access.authenticates() {
            AcceptedHosts::Any
        } else {
            AcceptedHosts::Loopback
        };
        let access = ServerAccess::open(root, access).await?;
        let (listener, address) = bind(address, "--http").await?;
        let (router, end) = http_router(&server, hosts);
        let router = router.layer(from_fn(set_owner));
        let scheme = access.url_scheme();
        let router = restricted(router, access.control);
        let limits = PLACE_LIMITS
            .connections_max(descriptors::connections_max(PLACE_LIMITS.connections_max));
        let options = ServerOptions::default()
            .places(Places::new(limits))
            .tls(access.tls);
        let spec = WorkSpec::new(ItemKind::Future, "listener");
        let accepting = connections.clone();
        let listening =
            connections.spawn(spec, move |_cx| serve(listener, router, accepting, options));
        drop(listening.context("a scope for the connections")?);
        let address = format!("listening on {scheme}://{address}{HTTP_PATH}\n");
        Ok(Self::Http { address, end })
    }

    pub(super) fn address(&self) -> Option<&str> {
        match self {
            Self::Stdio(_) => None,
            Self::Http { address, .. } => Some(address),
        }
    }

    /// Resolves when the only client is gone. Never resolves for HTTP.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ended(&self) {
        match self {
            Self::Stdio(client) => client.input_end.cancelled().await,
            Self::Http { .. } => std::future::pending().await,
        }
    }

    /// Ends the sessions. Waits until HTTP clients, and a client whose input has ended, have the last responses.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn close(&self, within: Duration) {
        match self {
            Self::Http { end, .. } => end.close(within).await,
            Self::Stdio(client) => {
                if client.input_end.is_cancelled() {
                    let _served_or_late = timeout(within, client.served.cancelled()).await;
                }
            }
        }
    }

    /// Reason why the client on standard input and output was not served.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::Stdio(client) => client.problem.get().cloned(),
            Self::Http { .. } => None,
        }
    }
}

/// Passes the principal, which the access control has set, to the server.
async fn set_owner(mut request: Request, next: Next) -> Response {
    let owner = CommandOwner(principal_of_headers(request.headers()));
    request.extensions_mut().insert(owner);
    next.run(request).await
}
