//! Endpoints for clients: standard input and output, or a port on this machine.

use std::net::Ipv4Addr;

use allstop_copilot::{ConnectionAccess, CopilotServer, ServedConnectionEnd};
use allstop_core::receipt::ItemKind;
use allstop_host::{Place, PlaceLimits, Places, accept_connections};
use allstop_jsonrpc::FrameError;
use allstop_scope::{Scope, WorkHandle, WorkSpec};
use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};

use crate::error::CliError;
use crate::standard_output::unbuffered_stdout;

/// Maximum number of connected clients. Each client may have many sessions.
const CONNECTIONS_MAX: usize = 256;

/// Serves the parent process on standard input and output, until the parent disconnects or sends an unreadable message.
pub(super) fn on_stdio(
    server: &CopilotServer,
    connections: &Scope,
) -> Result<WorkHandle<Option<FrameError>>, CliError> {
    let (server, output) = (server.clone(), unbuffered_stdout()?);
    let spec = WorkSpec::new(ItemKind::Future, "standard input and output");
    let serving = connections.spawn(spec, |_cx| async move {
        let end = server
            .serve(tokio::io::stdin(), output, ConnectionAccess::Trusted)
            .await;
        tracing::debug!(?end, "the connection has ended");
        match end {
            ServedConnectionEnd::Malformed(error) => Some(error),
            _ => None,
        }
    });
    Ok(serving.context("the start of the connection")?)
}

/// Serves clients on a port of this machine. Returns the line that names the port.
pub(super) async fn on_port(
    server: &CopilotServer,
    connections: &Scope,
    port: u16,
    access: ConnectionAccess,
) -> Result<(WorkHandle<Option<FrameError>>, Option<String>), CliError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
    let address = listener.local_addr().context("the address of the port")?;
    let (server, scope) = (server.clone(), connections.clone());
    let spec = WorkSpec::new(ItemKind::Future, "listener");
    let serve_one = move |stream: TcpStream, _cx, place: Place| {
        // A client stays connected between its requests, so it keeps its place.
        place.prove();
        place.set_busy(true);
        let (server, access) = (server.clone(), access.clone());
        async move {
            let (input, output) = stream.into_split();
            let end = server.serve(input, output, access).await;
            tracing::debug!(?end, "a connection has ended");
        }
    };
    let listening = connections.spawn(spec, move |_cx| async move {
        let places = Places::new(PlaceLimits::of_connections(CONNECTIONS_MAX));
        accept_connections(listener, scope, places, serve_one).await;
        None
    });
    let listening = listening.context("the start of the listener")?;
    let line = format!("listening on port {}\n", address.port());
    Ok((listening, Some(line)))
}
