//! The requesting side: finds the processes of this user, and sends requests to them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use allstop_core::{SessionId, StopId};
use allstop_jsonrpc::IncomingMessage;
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::folder::{ProcessNumber, SocketFolder};
use crate::peer::RemotePeer;
use crate::protocol::{
    ANSWER, AnswerParams, AnswerReport, EVENT, LIST, ProcessReport, RELEASE, ReleaseParams,
    ReleaseResult, RemoteStopParams, STOP, StopResult, WATCH, WatchParams, WatchResult,
};
use crate::watch_event::WatchEvent;

/// Maximum time until the answer to any request except a stop. A suspended process does not answer.
const LIST_MAX: Duration = Duration::from_secs(2);

/// Failure of a request to another process.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The process did not answer in time.
    #[error("process {0} does not answer: it may be suspended")]
    Silent(
        /// Pid of the process, as in all other variants.
        u32,
    ),
    /// The connection to the process failed.
    #[error("process {pid} cannot be reached: {error}")]
    Io {
        /// Pid of the process.
        pid: u32,
        /// Error of the socket.
        error: io::Error,
    },
    /// The process answered with an error, or sent an unreadable message.
    #[error("process {pid} refused: {message}")]
    Refused {
        /// Pid of the process.
        pid: u32,
        /// Message of the error.
        message: String,
    },
    /// The session is closed, or was never open in the process.
    #[error("process {pid} no longer has session {session} open")]
    NotOpen {
        /// Pid of the process.
        pid: u32,
        /// The session.
        session: SessionId,
    },
    /// No process listens on the socket.
    #[error("process {0} has ended")]
    Gone(u32),
    /// The process closed the connection before the answer.
    #[error("process {0} closed the connection without an answer: it may be ending, try again")]
    Closed(u32),
    /// Another user created the socket, so no request is sent.
    #[error("the socket of process {0} belongs to another user")]
    OtherUser(u32),
}

impl RemoteError {
    /// True if the process or the session ended before the answer came.
    pub fn is_of_ended_session(&self) -> bool {
        match self {
            Self::Gone(_) | Self::Closed(_) | Self::NotOpen { .. } => true,
            Self::Io { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
            Self::Silent(_) | Self::Refused { .. } | Self::OtherUser(_) => false,
        }
    }
}

/// A stop whose answer did not arrive.
#[derive(Debug)]
pub struct UnansweredStop {
    /// The error that prevented the answer.
    pub error: RemoteError,
    /// Id of the stop, if the process accepted it.
    pub accepted: Option<StopId>,
}

/// A process that owns sessions.
#[derive(Debug, Clone)]
pub struct RemoteProcess {
    /// Number of the process.
    pub number: ProcessNumber,
    socket: PathBuf,
}

/// All processes with a socket in this folder, with their reports. Removes sockets of ended processes.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub async fn processes(
    folder: &SocketFolder,
) -> io::Result<Vec<(RemoteProcess, Result<ProcessReport, RemoteError>)>> {
    each_process(folder, async |process, report| (process, report)).await
}

/// Requests a report from all processes with a socket in this folder, and calls `then` for each process as soon as this
/// process has answered. Removes sockets of ended processes.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Cancel safe if the futures of `then` are cancel safe.
pub async fn each_process<T>(
    folder: &SocketFolder,
    then: impl AsyncFn(RemoteProcess, Result<ProcessReport, RemoteError>) -> T,
) -> io::Result<Vec<T>> {
    let then = &then;
    let found = folder.sockets()?.into_iter();
    let asking = found.map(|(number, socket)| async move {
        let process = RemoteProcess { number, socket };
        let report = match timeout(LIST_MAX, process.list()).await {
            Ok(report) => report,
            Err(_elapsed) => Err(RemoteError::Silent(number.pid)),
        };
        if let Err(RemoteError::Gone(_)) = report {
            // A crashed process left this socket.
            drop(std::fs::remove_file(&process.socket));
            return None;
        }
        Some(then(process, report).await)
    });
    let all = join_all(asking).await;
    Ok(all.into_iter().flatten().collect())
}

impl RemoteProcess {
    /// Pid of the process, in the PID namespace that [`RemoteProcess::number`] contains.
    pub fn pid(&self) -> u32 {
        self.number.pid
    }

    async fn list(&self) -> Result<ProcessReport, RemoteError> {
        let params = serde_json::json!({});
        match self.request(LIST, &params).await {
            // The process may be about to end. In that case, the second request finds no socket, or a socket without a
            // listener.
            Err(error) if error.is_of_ended_session() => self.request(LIST, &params).await,
            answered => answered,
        }
    }

    /// Stops work in this process, and waits for the receipt of the stop.
    ///
    /// # Errors
    /// If the process is gone, or does not have this session open.
    ///
    /// # Cancel safety
    /// Dropping the future does not withdraw the stop.
    pub async fn stop(&self, params: &RemoteStopParams) -> Result<StopResult, UnansweredStop> {
        let mut accepted = None;
        let asking = async {
            let mut peer = self.connect().await?;
            let answer = peer.request(STOP, params).await;
            accepted = peer.accepted.take();
            answer
        };
        let answer: Result<StopResult, RemoteError> = asking.await;
        answer.map_err(|error| UnansweredStop { error, accepted })
    }

    /// Watches a session. The watch first returns the state of the running turn, then the later events of the session.
    ///
    /// # Errors
    /// If the process is gone, does not answer, or does not have this session open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn watch(&self, session: &SessionId) -> Result<RemoteWatch, RemoteError> {
        let params = WatchParams {
            session_id: session.clone(),
        };
        let watching = async {
            let mut peer = self.connect().await?;
            let result: WatchResult = peer.request(WATCH, &params).await?;
            Ok(RemoteWatch {
                peer,
                ready: result.events.into(),
                is_over: false,
            })
        };
        let watch = timeout(LIST_MAX, watching).await;
        watch.unwrap_or(Err(RemoteError::Silent(self.pid())))
    }

    /// Releases an idle session of a client, so that this process can open it. The session of a terminal, and a session
    /// with a running turn or running background work, is refused.
    ///
    /// # Errors
    /// If the process is gone, does not answer, or refuses.
    ///
    /// # Cancel safety
    /// Dropping the future does not withdraw the request.
    pub async fn release(&self, session: &SessionId) -> Result<(), RemoteError> {
        let params = ReleaseParams {
            session_id: session.clone(),
        };
        let releasing = self.request::<ReleaseResult>(RELEASE, &params);
        let released = timeout(LIST_MAX, releasing).await;
        let ReleaseResult {} = released.unwrap_or(Err(RemoteError::Silent(self.pid())))?;
        Ok(())
    }

    /// Answers a permission question. True if this answer was the first one to the question.
    ///
    /// # Errors
    /// If the process is gone, or does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future does not withdraw the answer.
    pub async fn answer(&self, params: &AnswerParams) -> Result<bool, RemoteError> {
        let answering = self.request::<AnswerReport>(ANSWER, params);
        let answered = timeout(LIST_MAX, answering).await;
        let answered = answered.unwrap_or(Err(RemoteError::Silent(self.pid())))?;
        Ok(answered.is_taken)
    }

    async fn connect(&self) -> Result<RemotePeer, RemoteError> {
        RemotePeer::connect(self.pid(), &self.socket).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, RemoteError> {
        let mut peer = self.connect().await?;
        peer.request(method, params).await
    }
}

/// The watch of a session in another process.
#[derive(Debug)]
pub struct RemoteWatch {
    peer: RemotePeer,
    /// Events from the answer to the watch request, not returned yet.
    ready: VecDeque<WatchEvent>,
    is_over: bool,
}

impl RemoteWatch {
    /// The next event; `None` after the end of the session.
    ///
    /// # Errors
    /// If the connection fails or is closed before the end of the session, or a message cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, RemoteError> {
        if let Some(event) = self.ready.pop_front() {
            return Ok(Some(event));
        }
        while !self.is_over {
            let message = self.peer.next_message().await?;
            let IncomingMessage::Notification { method, params } = message else {
                continue;
            };
            let params = params.filter(|_| method == EVENT);
            // Ignores the unknown events of a later version.
            let event = params.and_then(|params| serde_json::from_str(params.get()).ok());
            match event {
                Some(WatchEvent::Ended) => self.is_over = true,
                Some(event) => return Ok(Some(event)),
                None => {}
            }
        }
        Ok(None)
    }
}
