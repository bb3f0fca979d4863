//! The socket of a process that owns sessions.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use allstop_core::receipt::ItemKind;
use allstop_host::{Place, PlaceLimits, Places, accept_connections};
use allstop_scope::{WorkCx, WorkSpec};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::connection::RemoteConnection;
use crate::folder::SocketFolder;
use crate::owned::OwnedSessions;

/// Maximum number of open connections. A further connection gets the place of one that has no request in progress. A stop
/// keeps its connection open until the receipt of the stop is sent, so the limit must be high. But the limit must also
/// leave descriptors for tools, because the usual limit of a process is 1,024.
const CONNECTIONS_MAX: usize = 256;

/// A socket that receives requests of other processes, such as stops. Dropping the listener removes the socket.
#[derive(Debug)]
pub struct RemoteListener {
    /// Requests whose answer is not completely written yet.
    in_flight: TaskTracker,
    owned: OwnedSessions,
    /// The socket, or the error that prevented its creation.
    socket: io::Result<SocketFile>,
    /// Ends the accept loop on drop.
    _closed: DropGuard,
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
    /// Opens a socket for requests about these sessions, in `folder`. A process without a socket works, but other
    /// terminals cannot stop it; [`RemoteListener::problem`] gives the reason.
    pub fn listen(owned: OwnedSessions, folder: &SocketFolder) -> Self {
        let in_flight = TaskTracker::new();
        let closed = CancellationToken::new();
        let is_closed = closed.clone();
        let socket = bind(folder).and_then(|(listener, file)| {
            let (sessions, in_flight) = (owned.clone(), in_flight.clone());
            let spec = WorkSpec::new(ItemKind::Future, "socket for stops");
            let scope = owned.scope().clone();
            let accepting = owned.scope().spawn(spec, move |_cx| {
                let serve_one = move |stream, cx, place| {
                    serve(stream, cx, place, sessions.clone(), in_flight.clone())
                };
                let places = Places::new(PlaceLimits::of_connections(CONNECTIONS_MAX));
                let accepting = accept_connections(listener, scope, places, serve_one);
                async move {
                    let _ended_or_closed = is_closed.run_until_cancelled(accepting).await;
                }
            });
            accepting.map_err(io::Error::other)?;
            Ok(file)
        });
        Self {
            in_flight,
            owned,
            socket,
            _closed: closed.drop_guard(),
        }
    }

    pub(crate) fn sessions(&self) -> &OwnedSessions {
        &self.owned
    }

    /// Describes why other terminals cannot stop this process; `None` if they can.
    pub fn problem(&self) -> Option<String> {
        let error = self.socket.as_ref().err()?;
        Some(format!(
            "this process cannot be stopped from another terminal: {error}"
        ))
    }

    /// Ends the announcements to watchers (programs in other terminals that show a session), and waits until every
    /// request has its answer. Then waits a short time for the watchers to read the end of their sessions.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn answered(&self) {
        self.owned.finish();
        self.in_flight.close();
        self.in_flight.wait().await;
        self.owned.watchers_gone().await;
    }
}

fn bind(folder: &SocketFolder) -> io::Result<(UnixListener, SocketFile)> {
    let path = folder.own_socket()?;
    // Removes the socket of an earlier process that had this pid.
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

async fn serve(
    stream: UnixStream,
    cx: WorkCx,
    place: Place,
    owned: OwnedSessions,
    in_flight: TaskTracker,
) {
    if !is_own_user(&stream) {
        return;
    }
    place.prove();
    let connection = RemoteConnection::new(owned, in_flight, place);
    tokio::select! {
        _stopped = cx.stopped_at("request of another process") => {}
        () = connection.serve(stream) => {}
    }
}

/// True if the peer runs as the user of this process.
pub(crate) fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}
