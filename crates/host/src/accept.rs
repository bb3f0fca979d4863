//! The accept loop of a server.

use std::io;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkCx, WorkSpec};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

use crate::places::{Place, PlaceGuard, Places};

/// Pause after a connection could not be accepted. The usual reason is too many open files. This reason disappears when
/// another connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Socket that accepts connections.
pub trait Listener: Send + Sync {
    /// A connection.
    type Stream: Send + 'static;

    /// Accepts the next connection. Returns the connection and its name for the receipt of a stop.
    ///
    /// # Errors
    /// If the system cannot provide a connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, String)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = self.accept().await?;
        // The answers are small. Without this option, the last part of an answer is delayed until the peer acknowledges
        // the parts before it.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        Ok((stream, format!("connection of {peer}")))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _unnamed) = self.accept().await?;
        Ok((stream, "connection of another process".to_owned()))
    }
}

/// Accepts connections until a stop covers `scope`. Serves each connection as work of the scope. A connection that loses
/// its place (see [`Places`]) is dropped.
///
/// # Cancel safety
/// Dropping the future stops accepting. Accepted connections continue in their scope.
pub async fn accept_connections<L, F>(
    listener: L,
    scope: Scope,
    places: Places,
    serve: impl Fn(L::Stream, WorkCx, Place) -> F + Send,
) where
    L: Listener,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let (stream, name, taken) = tokio::select! {
            biased;
            () = scope.stopped() => return,
            accepted = accept(&listener, &places) => accepted,
        };
        let spec = WorkSpec::new(ItemKind::Future, name);
        let served = scope.spawn(spec, |cx| {
            let serving = serve(stream, cx, taken.place().clone());
            async move {
                tokio::select! {
                    () = serving => {}
                    () = taken.place().lost() => tracing::debug!("a connection has lost its place"),
                }
            }
        });
        if served.is_err() {
            return;
        }
    }
}

async fn accept<L: Listener>(listener: &L, places: &Places) -> (L::Stream, String, PlaceGuard) {
    loop {
        match listener.accept().await {
            Ok((stream, name)) => return (stream, name, places.take().await),
            Err(error) => {
                tracing::warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
