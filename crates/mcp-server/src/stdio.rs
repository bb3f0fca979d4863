//! One client on a pair of pipes, such as standard input and output.

use std::sync::Arc;

use allstop_scope::WorkCx;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotification, ClientNotification, ErrorData, JsonRpcMessage, JsonRpcNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage, serve_server_with_ct};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::confirmed_cancel::ConfirmedCancels;
use crate::incoming::LineTransport;
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
    let confirmed = ConfirmedCancels::default();
    let server = server.confirming(confirmed.clone());
    let transport = PipeTransport {
        inner: LineTransport::new(input, output),
        confirmed,
        unsent: Arc::default(),
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
    confirmed: ConfirmedCancels,
    /// Each unsent message holds a clone.
    unsent: Arc<()>,
    /// Errors that are being sent.
    refusals: FuturesUnordered<BoxFuture<'static, ()>>,
    input_end: CancellationToken,
}

impl<T: Transport<RoleServer>> PipeTransport<T> {
    /// Cancels a call whose cancellation is confirmed. False for any other call.
    fn is_confirmed(&self, cancelled: &CancelledNotification) -> bool {
        let id = cancelled.params.request_id.as_ref();
        id.is_some_and(|id| self.confirmed.cancel(id))
    }

    /// Passes a message on. `None` if the transport handles the message itself.
    fn admit(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        let unsent = Arc::strong_count(&self.unsent) - 1;
        match message {
            JsonRpcMessage::Request(request) if unsent >= UNSENT_MAX => {
                let why = "too many unread messages: read them, and send the request again";
                let error = ErrorData::internal_error(why, None);
                let refusal = self.send(JsonRpcMessage::error(error, Some(request.id)));
                self.refusals.push(refusal.map(drop).boxed());
                None
            }
            JsonRpcMessage::Notification(JsonRpcNotification {
                notification: ClientNotification::CancelledNotification(cancelled),
                ..
            }) if self.is_confirmed(&cancelled) => None,
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
        let sending = self.inner.send(message);
        let input_end = self.input_end.clone();
        async move {
            let sent = sending.await;
            if sent.is_err() {
                // A client that has closed its end of the output is gone.
                input_end.cancel();
            }
            drop(counted);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
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
