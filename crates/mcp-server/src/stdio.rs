//! One client on a pair of pipes, such as standard input and output.

use std::sync::Arc;

use allstop_scope::WorkCx;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ErrorData, JsonRpcMessage, JsonRpcNotification, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage, serve_server_with_ct};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::incoming::LineTransport;
use crate::open_requests::OpenRequests;
use crate::server::CommandServer;

/// Maximum number of unsent messages to a client that reads nothing. The server refuses further requests until the client
/// takes a message. It continues to read, because the end of the input and a cancelled request must stop work.
const UNSENT_MAX: usize = 256;

/// Maximum number of unsent refusals: less than 1 MB. The server treats a client that reads none of them as gone.
const REFUSED_MAX: usize = 4 * 1024;

/// Serves a client until its input ends or a stop covers `cx`. Cancels `input_end` as soon as the input ends or the client
/// accepts no more output, before the last responses are sent.
///
/// # Errors
/// If the client sends anything before its first request. The error is for people.
///
/// # Cancel safety
/// Dropping the future ends the connection; the tasks continue.
pub async fn serve_pipes(
    server: CommandServer,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    input_end: CancellationToken,
    cx: &WorkCx,
) -> Result<(), String> {
    let requests = OpenRequests::default();
    let server = server.confirming(requests.clone());
    let transport = PipeTransport {
        inner: LineTransport::new(input, output),
        requests,
        unsent: Arc::default(),
        ahead: None,
        refusals: FuturesUnordered::new(),
        input_end: input_end.clone(),
    };
    let end = CancellationToken::new();
    let starting = serve_server_with_ct(server, transport, end.clone());
    let running = tokio::select! {
        biased;
        _cause = cx.stopped_at("start of the connection") => return Ok(()),
        running = starting => running,
    };
    let running = match running {
        Ok(running) => running,
        Err(_) if input_end.is_cancelled() => return Ok(()),
        Err(error) => {
            input_end.cancel();
            return Err(error.to_string());
        }
    };
    let mut waiting = std::pin::pin!(running.waiting());
    tokio::select! {
        biased;
        ended = &mut waiting => log_end(&ended),
        _cause = cx.stopped_at("connection") => {
            end.cancel();
            log_end(&waiting.await);
        }
    }
    input_end.cancel();
    Ok(())
}

fn log_end(ended: &Result<rmcp::service::QuitReason, tokio::task::JoinError>) {
    tracing::debug!(?ended, "the connection has ended");
}

/// Transport that bounds the unsent messages, and notifies about the end of the client.
struct PipeTransport<T> {
    inner: T,
    requests: OpenRequests,
    /// Each unsent message holds a clone.
    unsent: Arc<()>,
    /// The message that directly followed the last one.
    ahead: Option<RxJsonRpcMessage<RoleServer>>,
    /// Errors that are being sent.
    refusals: FuturesUnordered<BoxFuture<'static, ()>>,
    input_end: CancellationToken,
}

impl<T: Transport<RoleServer>> PipeTransport<T> {
    /// Refuses a request.
    fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) {
        let refusal = self.send(JsonRpcMessage::error(error, id));
        self.refusals.push(refusal.map(drop).boxed());
    }

    /// Passes a message on. `None` if the transport handles the message itself.
    fn admit(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        let unsent = Arc::strong_count(&self.unsent) - 1;
        match message {
            JsonRpcMessage::Request(request)
                if !self.requests.enter(&request.id, &request.request) =>
            {
                let id = &request.id;
                let why = format!("the id {id} belongs to a request without a response yet");
                // The id stays with the first request, whose client would take this error for its end.
                self.refuse(ErrorData::invalid_request(why, None), None);
                None
            }
            JsonRpcMessage::Request(request) if unsent >= UNSENT_MAX => {
                let why = "too many unread messages: read them, and send the request again";
                self.refuse(ErrorData::internal_error(why, None), Some(request.id));
                None
            }
            JsonRpcMessage::Notification(JsonRpcNotification {
                notification: ClientNotification::CancelledNotification(cancelled),
                ..
            }) if self.requests.cancel(&cancelled) => None,
            message => Some(message),
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for PipeTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let counted = Arc::clone(&self.unsent);
        let sending = self.requests.leave(&message);
        let sending = sending.then(|| self.inner.send(message));
        let input_end = self.input_end.clone();
        async move {
            let sent = match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            };
            if sent.is_err() {
                // A client that has closed its end of the output is gone.
                input_end.cancel();
            }
            drop(counted);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if let Some(ahead) = self.ahead.take() {
            return Some(ahead);
        }
        while self.refusals.len() < REFUSED_MAX {
            let received = tokio::select! {
                biased;
                Some(()) = self.refusals.next() => continue,
                received = self.inner.receive() => received,
            };
            let Some(message) = received else {
                break;
            };
            if let Some(admitted) = self.admit(message) {
                // A cancellation that comes with its call must be seen before the call begins.
                let next = self.inner.receive().now_or_never().flatten();
                self.ahead = next.and_then(|next| self.admit(next));
                return Some(admitted);
            }
        }
        self.input_end.cancel();
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
