//! The accept loop of a server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkCx, WorkSpec};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

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

/// Accepts connections until a stop covers `scope`. Serves each connection as work of the scope. At most
/// `connections_max` connections are served at a time. Further connections wait in the system's queue.
///
/// # Cancel safety
/// Dropping the future stops accepting. Accepted connections continue in their scope.
pub async fn accept_connections<L, F>(
    listener: L,
    scope: Scope,
    connections_max: usize,
    serve: impl Fn(L::Stream, WorkCx) -> F + Send,
) where
    L: Listener,
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(connections_max));
    loop {
        let (stream, name, permit) = tokio::select! {
            biased;
            () = scope.stopped() => return,
            accepted = accept(&listener, &permits) => accepted,
        };
        let spec = WorkSpec::new(ItemKind::Future, name);
        let served = scope.spawn(spec, |cx| {
            let serving = serve(stream, cx);
            async move {
                serving.await;
                drop(permit);
            }
        });
        if served.is_err() {
            return;
        }
    }
}

async fn accept<L: Listener>(
    listener: &L,
    permits: &Arc<Semaphore>,
) -> (L::Stream, String, OwnedSemaphorePermit) {
    loop {
        let permit = Arc::clone(permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, name)) => return (stream, name, permit),
            Err(error) => {
                tracing::warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
