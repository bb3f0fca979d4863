//! The side that asks: finds the processes of this user, and talks to them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::SessionId;
use allstop_jsonrpc::IncomingMessage;
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::folder;
use super::peer::RemotePeer;
use super::protocol::{
    ANSWER, AnswerParams, AnswerReport, EVENT, LIST, ProcessReport, RemoteStopParams, STOP,
    StopResult, WATCH, WatchParams, WatchResult,
};
use super::watch_event::WatchEvent;

/// Time for a process to say what it does. One that was suspended says nothing.
const LIST_MAX: Duration = Duration::from_secs(2);

/// Failure to talk to a process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("process {0} does not answer: it may be suspended")]
    Silent(u32),
    #[error("process {pid} cannot be reached: {error}")]
    Io { pid: u32, error: io::Error },
    #[error("process {pid} refused: {message}")]
    Refused { pid: u32, message: String },
    #[error("process {0} has ended")]
    Gone(u32),
    #[error("process {0} closed the connection before it answered: it may be ending, look again")]
    Closed(u32),
    #[error("the socket of process {0} belongs to another user")]
    OtherUser(u32),
}

/// A process that owns sessions.
#[derive(Debug, Clone)]
pub(crate) struct RemoteProcess {
    pub(crate) pid: u32,
    socket: PathBuf,
}

/// A stop in another process, with its receipt.
#[derive(Debug, Clone)]
pub(crate) struct StoppedSession {
    pub(crate) session: SessionId,
    pub(crate) receipt: Receipt,
}

/// All processes of this user, with what they do. Sockets of processes that have ended are removed.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn processes()
-> io::Result<Vec<(RemoteProcess, Result<ProcessReport, RemoteError>)>> {
    let found = folder::sockets()?.into_iter();
    let asking = found.map(|(pid, socket)| async move {
        let process = RemoteProcess { pid, socket };
        let report = match timeout(LIST_MAX, process.list()).await {
            Ok(report) => report,
            Err(_elapsed) => Err(RemoteError::Silent(pid)),
        };
        (process, report)
    });
    let mut all = join_all(asking).await;
    all.retain(|(process, report)| match report {
        // Left by a crash.
        Err(RemoteError::Gone(_)) => {
            drop(std::fs::remove_file(&process.socket));
            false
        }
        _ => true,
    });
    Ok(all)
}

impl RemoteProcess {
    async fn list(&self) -> Result<ProcessReport, RemoteError> {
        let params = serde_json::json!({});
        match self.request(LIST, &params, || {}).await {
            // It may be ending: then its socket is gone, or nobody listens on it.
            Err(RemoteError::Closed(_)) => self.request(LIST, &params, || {}).await,
            answered => answered,
        }
    }

    /// Stops work in this process, and waits for the receipt. `accepted`: called when the stop is accepted.
    ///
    /// # Errors
    /// If the process is gone, or has not this session.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back the stop.
    pub(crate) async fn stop(
        &self,
        params: &RemoteStopParams,
        accepted: impl FnMut() + Send,
    ) -> Result<StoppedSession, RemoteError> {
        let result: StopResult = self.request(STOP, params, accepted).await?;
        Ok(StoppedSession {
            session: params.session_id.clone(),
            receipt: result.receipt,
        })
    }

    /// Attaches to a session: first what its turn is doing, then its events.
    ///
    /// # Errors
    /// If the process is gone, does not answer, or has not this session.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn watch(&self, session: &SessionId) -> Result<RemoteWatch, RemoteError> {
        let params = WatchParams {
            session_id: session.clone(),
        };
        let watching = async {
            let mut peer = self.connect().await?;
            let result: WatchResult = peer.request(WATCH, &params, || {}).await?;
            Ok(RemoteWatch {
                peer,
                ready: result.events.into(),
                is_over: false,
            })
        };
        let watch = timeout(LIST_MAX, watching).await;
        watch.unwrap_or(Err(RemoteError::Silent(self.pid)))
    }

    /// Answers a permission question. True if this answer was the first.
    ///
    /// # Errors
    /// If the process is gone, or does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back the answer.
    pub(crate) async fn answer(&self, params: &AnswerParams) -> Result<bool, RemoteError> {
        let answering = self.request::<AnswerReport>(ANSWER, params, || {});
        let answered = timeout(LIST_MAX, answering).await;
        let answered = answered.unwrap_or(Err(RemoteError::Silent(self.pid)))?;
        Ok(answered.is_taken)
    }

    async fn connect(&self) -> Result<RemotePeer, RemoteError> {
        RemotePeer::connect(self.pid, &self.socket).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        accepted: impl FnMut() + Send,
    ) -> Result<T, RemoteError> {
        let mut peer = self.connect().await?;
        peer.request(method, params, accepted).await
    }
}

/// A session that is watched.
#[derive(Debug)]
pub(crate) struct RemoteWatch {
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
    pub(crate) async fn next(&mut self) -> Result<Option<WatchEvent>, RemoteError> {
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
