//! Endpoints for clients: standard input and output, or a port on this machine.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use allstop_copilot::{ConnectionAccess, CopilotServer, ServedConnectionEnd};
use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::FrameError;
use allstop_scope::{Scope, WorkHandle, WorkSpec};
use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::error::CliError;

/// Clients at a time: each may have many sessions.
const CONNECTIONS_MAX: usize = 256;

/// Pause after a connection that was not accepted: descriptors may be free again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves the process that started this one, until it is gone, or until it sends what cannot be read.
pub(super) fn on_stdio(
    server: &CopilotServer,
    connections: &Scope,
) -> Result<WorkHandle<Option<FrameError>>, CliError> {
    let server = server.clone();
    let spec = WorkSpec::new(ItemKind::Future, "standard input and output");
    let serving = connections.spawn(spec, |_cx| async move {
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let end = server.serve(input, output, ConnectionAccess::Trusted).await;
        tracing::debug!(?end, "the connection has ended");
        match end {
            ServedConnectionEnd::Malformed(error) => Some(error),
            _ => None,
        }
    });
    Ok(serving.context("the start of the connection")?)
}

/// Serves clients on a port of this machine. Returns the line that tells the port.
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
    let listening = connections.spawn(spec, move |cx| async move {
        tokio::select! {
            _stopped = cx.stopped_at("listener") => {}
            () = accept(&listener, &server, &scope, &access) => {}
        }
        None
    });
    let listening = listening.context("the start of the listener")?;
    let line = format!("listening on port {}\n", address.port());
    Ok((listening, Some(line)))
}

async fn accept(
    listener: &TcpListener,
    server: &CopilotServer,
    scope: &Scope,
    access: &ConnectionAccess,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _address)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        // Small frames that wait for each other would take 40 ms each.
        let _no_matter = stream.set_nodelay(true);
        let (server, access) = (server.clone(), access.clone());
        let spec = WorkSpec::new(ItemKind::Future, "connection");
        let spawned = scope.spawn(spec, |_cx| async move {
            let (input, output) = stream.into_split();
            let end = server.serve(input, output, access).await;
            tracing::debug!(?end, "a connection has ended");
            drop(place);
        });
        if spawned.is_err() {
            return;
        }
    }
}
