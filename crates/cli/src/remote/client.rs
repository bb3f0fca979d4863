//! The side that asks: finds the processes of this user, and talks to them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::SessionId;
use allstop_jsonrpc::{
    AnswerDelivery, FrameDecoder, FrameLimits, IncomingMessage, OutgoingRequests, RpcFailure,
    encode_frame, encode_request,
};
use futures::FutureExt as _;
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::folder;
use super::listener::is_own_user;
use super::protocol::{ACCEPTED, LIST, ProcessReport, RemoteStopParams, STOP, StopResult};

/// Time for a process to say what it does. One that was suspended says nothing.
const LIST_MAX: Duration = Duration::from_secs(2);

/// A receipt can have ten thousand items.
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 1_024,
    body_bytes_max: 64 * 1_024 * 1_024,
};

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

    async fn connect(&self) -> Result<UnixStream, RemoteError> {
        let pid = self.pid;
        let connected = UnixStream::connect(&self.socket).await;
        let stream = connected.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => RemoteError::Gone(pid),
            _ => RemoteError::Io { pid, error },
        })?;
        if is_own_user(&stream) {
            Ok(stream)
        } else {
            Err(RemoteError::OtherUser(pid))
        }
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        mut accepted: impl FnMut() + Send,
    ) -> Result<T, RemoteError> {
        let pid = self.pid;
        let mut stream = self.connect().await?;
        let io = |error| RemoteError::Io { pid, error };
        let refused = |message: String| RemoteError::Refused { pid, message };
        let outgoing = OutgoingRequests::new(1);
        let begun = outgoing.begin();
        let (id, mut answer) = begun.map_err(|error| refused(error.to_string()))?;
        let body = encode_request(&id, method, params);
        let body = body.map_err(|error| refused(error.to_string()))?;
        stream.write_all(&encode_frame(&body)).await.map_err(io)?;
        let mut decoder = FrameDecoder::new(LIMITS);
        let mut chunk = vec![0; 64 * 1_024];
        loop {
            let len = stream.read(&mut chunk).await.map_err(io)?;
            if len == 0 {
                return Err(RemoteError::Closed(pid));
            }
            decoder.push(chunk.get(..len).unwrap_or_default());
            loop {
                let frame = decoder.next_frame();
                let Some(body) = frame.map_err(|error| refused(error.to_string()))? else {
                    break;
                };
                match IncomingMessage::parse(&body) {
                    Ok(IncomingMessage::Notification { method, .. }) if method == ACCEPTED => {
                        accepted();
                    }
                    Ok(IncomingMessage::Response {
                        id: Some(id),
                        result,
                    }) => {
                        let delivered = outgoing.complete(&id, result);
                        debug_assert_eq!(delivered, AnswerDelivery::Delivered);
                    }
                    Ok(IncomingMessage::Response {
                        id: None,
                        result: Err(error),
                    }) => return Err(refused(error.message)),
                    Ok(_) => {}
                    Err(malformed) => return Err(refused(malformed.error.message)),
                }
            }
            let Some(answered) = (&mut answer).now_or_never() else {
                continue;
            };
            let result = answered.map_err(|failure| match failure {
                RpcFailure::Rpc(error) => refused(error.message),
                RpcFailure::Closed => RemoteError::Closed(pid),
            })?;
            return serde_json::from_str(result.get()).map_err(|error| refused(error.to_string()));
        }
    }
}
