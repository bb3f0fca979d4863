//! One client on a pair of pipes, such as standard input and output.
//!
//! The messages are lines. A line that is no JSON is ignored, so it does not end the server.

use allstop_scope::WorkCx;
use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage, serve_server_with_ct};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::server::CommandServer;

/// Maximum number of messages to a client that reads nothing. The server reads no more requests until the client takes a
/// message.
const UNSENT_MAX: usize = 256;

/// Serves a client until its input ends or a stop covers `cx`. Cancels `input_end` as soon as the input ends, before
/// the last responses are sent.
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
    let transport = PipeTransport {
        inner: AsyncRwTransport::new_server(input, output),
        unsent: watch::Sender::new(0),
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

/// Transport that bounds the unsent messages, and notifies about the end of the input.
struct PipeTransport<T> {
    inner: T,
    /// Number of unsent messages.
    unsent: watch::Sender<usize>,
    input_end: CancellationToken,
}

/// Counts one unsent message until it is dropped.
struct UnsentMessage(watch::Sender<usize>);

impl UnsentMessage {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for UnsentMessage {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for PipeTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let counted = UnsentMessage::new(&self.unsent);
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            drop(counted);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut unsent = self.unsent.subscribe();
        // The sender is part of this transport, so the wait cannot fail.
        drop(unsent.wait_for(|count| *count < UNSENT_MAX).await);
        let received = self.inner.receive().await;
        if received.is_none() {
            self.input_end.cancel();
        }
        received
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
