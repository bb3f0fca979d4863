//! The side that asks: finds the processes of this user, and talks to them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use allstop_core::{Receipt, SessionId, StopId};
use allstop_jsonrpc::IncomingMessage;
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::folder::{ProcessNumber, SocketFolder};
use crate::peer::RemotePeer;
use crate::protocol::{
    ANSWER, AnswerParams, AnswerReport, EVENT, LIST, ProcessReport, RemoteStopParams, STOP,
    StopResult, WATCH, WatchParams, WatchResult,
};
use crate::watch_event::WatchEvent;

/// Time for a process to say what it does. One that was suspended says nothing.
const LIST_MAX: Duration = Duration::from_secs(2);

/// Failure to talk to a process.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It did not answer in time.
    #[error("process {0} does not answer: it may be suspended")]
    Silent(
        /// Its pid, as in all of these.
        u32,
    ),
    /// Its socket failed.
    #[error("process {pid} cannot be reached: {error}")]
    Io {
        /// Its pid.
        pid: u32,
        /// Error of the socket.
        error: io::Error,
    },
    /// It answered with an error, or with what cannot be read.
    #[error("process {pid} refused: {message}")]
    Refused {
        /// Its pid.
        pid: u32,
        /// Its message.
        message: String,
    },
    /// The session is closed, or was never open there.
    #[error("process {pid} does not have the session {session} open any more")]
    NotOpen {
        /// Its pid.
        pid: u32,
        /// The session.
        session: SessionId,
    },
    /// Nobody listens on its socket.
    #[error("process {0} has ended")]
    Gone(u32),
    /// It closed the connection before the answer.
    #[error("process {0} closed the connection before it answered: it may be ending, look again")]
    Closed(u32),
    /// Somebody else made the socket: it is not talked to.
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

/// A stop without an answer.
#[derive(Debug)]
pub struct UnansweredStop {
    /// What is known of the process.
    pub error: RemoteError,
    /// Id of the stop, if it was accepted.
    pub accepted: Option<StopId>,
}

/// A process that owns sessions.
#[derive(Debug, Clone)]
pub struct RemoteProcess {
    /// Its number.
    pub number: ProcessNumber,
    socket: PathBuf,
}

/// All processes with a socket in this folder, with what they do. Sockets of processes that have ended are removed.
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

/// Asks all processes with a socket in this folder for their report, and calls `then` for each as soon as it has answered.
/// Removes sockets of processes that have ended.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// As `then`.
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
            // Left by a crash.
            drop(std::fs::remove_file(&process.socket));
            return None;
        }
        Some(then(process, report).await)
    });
    let all = join_all(asking).await;
    Ok(all.into_iter().flatten().collect())
}

impl RemoteProcess {
    /// Its pid, which counts in the PID namespace of its number.
    pub fn pid(&self) -> u32 {
        self.number.pid
    }

    async fn list(&self) -> Result<ProcessReport, RemoteError> {
        let params = serde_json::json!({});
        match self.request(LIST, &params).await {
            // The process may be ending: then its socket is gone, or has no listener.
            Err(error) if error.is_of_ended_session() => self.request(LIST, &params).await,
            answered => answered,
        }
    }

    /// Stops work in this process, and waits for the receipt.
    ///
    /// # Errors
    /// If the process is gone, or does not have this session open.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back the stop.
    pub async fn stop(&self, params: &RemoteStopParams) -> Result<Receipt, UnansweredStop> {
        let mut accepted = None;
        let asking = async {
            let mut peer = self.connect().await?;
            let answer = peer.request(STOP, params).await;
            accepted = peer.accepted.take();
            answer
        };
        match asking.await {
            Ok(StopResult { receipt }) => Ok(receipt),
            Err(error) => Err(UnansweredStop { error, accepted }),
        }
    }

    /// Attaches to a session: first what its turn is doing, then its events.
    ///
    /// # Errors
    /// If the process is gone, does not answer, or has not this session.
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

    /// Answers a permission question. True if this answer was the first.
    ///
    /// # Errors
    /// If the process is gone, or does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back the answer.
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

/// A session that is watched.
#[derive(Debug)]
pub struct RemoteWatch {
    peer: RemotePeer,
    /// Events that came with the answer.
    ready: VecDeque<WatchEvent>,
    is_over: bool,
}

impl RemoteWatch {
    /// The next event; `None` after the end of the session.
    ///
    /// # Errors
    /// If the process ended without a word.
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
            // An event of a later version is none of this one's.
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
