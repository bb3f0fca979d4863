//! The socket of a process that owns sessions.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::ids::QuestionId;
use allstop_core::receipt::ItemKind;
use allstop_core::{Receipt, Timestamp};
use allstop_runtime::System;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_session::Session;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::connection::{RemoteConnection, RemoteStop};
use super::folder;
use super::follower::{ANNOUNCEMENTS_MAX, Announcement, WatchedSession};
use super::watch_event::WatchEvent;

/// Connections at a time: more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// Stops that wait to be shown by the owner: they are accepted in any case.
const STOPS_MAX: usize = 64;

/// Watchers at a time: connections are left for stops.
pub(super) const WATCHERS_MAX: usize = 16;

/// Time for watchers to read the end of the session. One that does not read has to do without.
const WATCHERS_WAIT_MAX: Duration = Duration::from_millis(100);

/// Pause after a connection that was not accepted: descriptors may be free again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Session of a process, as other processes see it.
#[derive(Debug)]
pub(super) struct OwnedSession {
    pub(super) session: Session,
    pub(super) watched: WatchedSession,
    /// Places of watchers.
    pub(super) watchers: Arc<Semaphore>,
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
    owned: Arc<OwnedSession>,
    announcer: Announcer,
    /// The socket, or the reason for which there is none.
    socket: io::Result<SocketFile>,
    /// Ends the connections with the listener.
    _scope: Scope,
}

/// Tells watchers what the terminal of the session shows beside its events. It waits for nobody.
#[derive(Debug, Clone)]
pub(crate) struct Announcer(mpsc::Sender<Announcement>);

impl Announcer {
    /// Shows it to all who watch.
    pub(crate) fn tell(&self, event: WatchEvent) {
        // Full: the follower does not run, so nobody watches.
        let _told_or_full = self.0.try_send(Announcement::Tell(event));
    }

    /// Shows a receipt to all who watch.
    pub(crate) fn receipt(&self, receipt: &Arc<Receipt>) {
        let receipt = Arc::clone(receipt);
        self.tell(WatchEvent::Receipt { receipt });
    }

    /// Says that a stop has begun, which uses force at this time.
    pub(crate) fn stopping(&self, force_at: Option<Instant>) {
        let left = force_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left {
            let force_in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.tell(WatchEvent::Stopping { force_in_ms });
        }
    }

    /// Shows a line to all who watch.
    pub(crate) fn note(&self, text: String) {
        self.tell(WatchEvent::Note { text });
    }
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

    /// The reason for which this process cannot be stopped from another terminal, in a line for people.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.socket.as_ref().err()?;
        Some(format!(
            "this process cannot be stopped from another terminal: {error}"
        ))
    }

    /// Tells watchers what the terminal shows.
    pub(crate) fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    /// Name of the answerer of a question, if it was not the terminal of the session.
    pub(crate) fn answered_by(&self, question: &QuestionId) -> Option<String> {
        self.owned.watched.answered_by(question)
    }

    /// Waits until every request has its answer, and every watcher that reads knows of the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn answered(&self) {
        let _told_or_full = self.announcer.0.try_send(Announcement::Finish);
        self.in_flight.close();
        self.in_flight.wait().await;
        let all = u32::try_from(WATCHERS_MAX).unwrap_or(u32::MAX);
        let gone = self.owned.watchers.acquire_many(all);
        drop(tokio::time::timeout(WATCHERS_WAIT_MAX, gone).await);
    }
}

/// Listens for this session. A process without a socket works, and cannot be stopped from elsewhere: the screen says why
/// ([`RemoteListener::problem`]).
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
    let (announcer, announcements) = mpsc::channel(ANNOUNCEMENTS_MAX);
    let owned = Arc::new(OwnedSession {
        session: session.clone(),
        watched: WatchedSession::new(session.clone()),
        watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
        model: system.model_name().to_owned(),
        command,
        folder: system.folder().to_owned(),
        started_at: now,
    });
    let socket = bind().and_then(|(listener, file)| {
        let followed = Arc::clone(&owned);
        let events = session.watch();
        let spec = WorkSpec::new(ItemKind::Future, "events for watchers");
        let following = scope.spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("events for watchers") => {}
                () = followed.watched.follow(events, announcements) => {}
            }
        });
        following.map_err(io::Error::other)?;
        let (scope, in_flight) = (scope.clone(), in_flight.clone());
        let owned = Arc::clone(&owned);
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
    RemoteListener {
        stops,
        in_flight,
        owned,
        announcer: Announcer(announcer),
        socket,
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
