//! Connection to a process that owns sessions: sends one request at a time, and receives notifications.

use std::io;
use std::path::Path;

use allstop_core::StopId;
use allstop_jsonrpc::{
    AnswerDelivery, FrameDecoder, FrameLimits, IncomingMessage, OutgoingRequests, RpcFailure,
    encode_frame, encode_request,
};
use futures::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::RemoteError;
use crate::listener::is_own_user;
use crate::protocol::{ACCEPTED, AcceptedParams, not_open};

/// Limits of a received frame. The receipt of a stop can have ten thousand items.
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 1_024,
    body_bytes_max: 64 * 1_024 * 1_024,
};

const READ_BYTES: usize = 64 * 1_024;

/// Connection to a process of this user.
pub(crate) struct RemotePeer {
    pid: u32,
    stream: UnixStream,
    decoder: FrameDecoder,
    chunk: Vec<u8>,
    /// Id of the stop that the process accepted last.
    pub(crate) accepted: Option<StopId>,
}

impl std::fmt::Debug for RemotePeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("RemotePeer");
        debug.field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl RemotePeer {
    /// Connects to a process, unless it belongs to another user.
    pub(crate) async fn connect(pid: u32, socket: &Path) -> Result<Self, RemoteError> {
        let connected = UnixStream::connect(socket).await;
        let stream = connected.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => RemoteError::Gone(pid),
            _ => RemoteError::Io { pid, error },
        })?;
        if !is_own_user(&stream) {
            return Err(RemoteError::OtherUser(pid));
        }
        Ok(Self {
            pid,
            stream,
            decoder: FrameDecoder::new(LIMITS),
            chunk: vec![0; READ_BYTES],
            accepted: None,
        })
    }

    /// Sends a request, and waits for the answer.
    pub(crate) async fn request<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, RemoteError> {
        let pid = self.pid;
        let outgoing = OutgoingRequests::new(1);
        let begun = outgoing.begin();
        let (id, mut answer) = begun.map_err(|error| self.refused(&error))?;
        let body = encode_request(&id, method, params);
        let body = body.map_err(|error| self.refused(&error))?;
        let written = self.stream.write_all(&encode_frame(&body)).await;
        written.map_err(|error| RemoteError::Io { pid, error })?;
        loop {
            match self.next_message().await? {
                IncomingMessage::Notification { method, params } if method == ACCEPTED => {
                    let params = params.as_deref().map(RawValue::get);
                    let params = params.and_then(|text| serde_json::from_str(text).ok());
                    self.accepted = params.map(|params: AcceptedParams| params.stop_id);
                }
                IncomingMessage::Response {
                    id: Some(id),
                    result,
                } => {
                    let delivered = outgoing.complete(&id, result);
                    debug_assert_eq!(delivered, AnswerDelivery::Delivered);
                }
                IncomingMessage::Response {
                    id: None,
                    result: Err(error),
                } => return Err(self.refused(&error.message)),
                _ => {}
            }
            let Some(answered) = (&mut answer).now_or_never() else {
                continue;
            };
            let result = answered.map_err(|failure| match failure {
                RpcFailure::Rpc(error) => match not_open(&error) {
                    Some(session) => RemoteError::NotOpen { pid, session },
                    None => self.refused(&error.message),
                },
                RpcFailure::Closed => RemoteError::Closed(pid),
            })?;
            return serde_json::from_str(result.get()).map_err(|error| self.refused(&error));
        }
    }

    /// The next message from the process.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next_message(&mut self) -> Result<IncomingMessage, RemoteError> {
        let pid = self.pid;
        loop {
            let frame = self.decoder.next_frame();
            if let Some(body) = frame.map_err(|error| self.refused(&error))? {
                let message = IncomingMessage::parse(&body);
                return message.map_err(|malformed| self.refused(&malformed.error.message));
            }
            let read = self.stream.read(&mut self.chunk).await;
            let len = read.map_err(|error| RemoteError::Io { pid, error })?;
            if len == 0 {
                return Err(RemoteError::Closed(pid));
            }
            self.decoder.push(self.chunk.get(..len).unwrap_or_default());
        }
    }

    fn refused(&self, message: &impl ToString) -> RemoteError {
        RemoteError::Refused {
            pid: self.pid,
            message: message.to_string(),
        }
    }
}
