//! The socket of a process that owns sessions.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Timestamp;
use allstop_core::receipt::ItemKind;
use allstop_runtime::System;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_session::Session;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::connection::{RemoteConnection, RemoteStop};
use super::folder;

/// Connections at a time: more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// Stops that wait to be shown by the owner: they are accepted in any case.
const STOPS_MAX: usize = 64;

/// Pause after a connection that was not accepted: descriptors may be free again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Session of a process, as other processes see it.
#[derive(Debug)]
pub(super) struct OwnedSession {
    pub(super) session: Session,
    pub(super) model: String,
    pub(super) command: &'static str,
    pub(super) folder: PathBuf,
    pub(super) started_at: Timestamp,
}

/// A socket on which stops come in. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct RemoteListener {
    stops: mpsc::Receiver<RemoteStop>,
    /// Requests without a whole answer.
    in_flight: TaskTracker,
    _socket: Option<SocketFile>,
    /// Ends the connections with the listener.
    _scope: Scope,
}

/// File of a socket, removed on drop.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

impl RemoteListener {
    /// The next stop from elsewhere. It was accepted before.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> RemoteStop {
        match self.stops.recv().await {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// Waits until every request has its answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn answered(&self) {
        self.in_flight.close();
        self.in_flight.wait().await;
    }
}

/// Listens for this session. A process without a socket works, and cannot be stopped from elsewhere: the log says why.
pub(crate) fn listen(
    command: &'static str,
    session: &Session,
    system: &System,
    scopes: RootOptions,
) -> RemoteListener {
    let now = (scopes.now)();
    let scope = Scope::root("requests of other processes", scopes);
    let (tx, stops) = mpsc::channel(STOPS_MAX);
    let in_flight = TaskTracker::new();
    let owned = Arc::new(OwnedSession {
        session: session.clone(),
        model: system.model_name().to_owned(),
        command,
        folder: system.folder().to_owned(),
        started_at: now,
    });
    let socket = bind().and_then(|(listener, file)| {
        let (scope, in_flight) = (scope.clone(), in_flight.clone());
        let spec = WorkSpec::new(ItemKind::Future, "socket for stops");
        let accepting = scope.clone().spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("socket for stops") => {}
                () = accept(&listener, &scope, &owned, &tx, &in_flight) => {}
            }
        });
        accepting.map_err(io::Error::other)?;
        Ok(file)
    });
    if let Err(error) = &socket {
        tracing::warn!(%error, "this process cannot be stopped from another terminal");
    }
    RemoteListener {
        stops,
        in_flight,
        _socket: socket.ok(),
        _scope: scope,
    }
}

fn bind() -> io::Result<(UnixListener, SocketFile)> {
    let path = folder::own_socket()?;
    // Of an earlier process with this id.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = bind_in(&path)?;
    let file = SocketFile(path);
    std::fs::set_permissions(&file.0, PermissionsExt::from_mode(0o600))?;
    Ok((listener, file))
}

fn bind_in(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

async fn accept(
    listener: &UnixListener,
    scope: &Scope,
    owned: &Arc<OwnedSession>,
    stops: &mpsc::Sender<RemoteStop>,
    in_flight: &TaskTracker,
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
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        if !is_own_user(&stream) {
            continue;
        }
        let connection = RemoteConnection::new(Arc::clone(owned), stops.clone(), in_flight.clone());
        let spec = WorkSpec::new(ItemKind::Future, "request of another process");
        let spawned = scope.spawn(spec, |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("request of another process") => {}
                () = connection.serve(stream) => {}
            }
            drop(place);
        });
        if spawned.is_err() {
            return;
        }
    }
}

/// True if the peer runs as the user of this process.
pub(super) fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}
