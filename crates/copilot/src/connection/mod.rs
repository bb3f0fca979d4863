//! One connection: reads frames, passes requests to their methods, and writes answers and events.
//!
//! Invariants:
//! 1. Every request is answered exactly once, unless the connection ends first.
//! 2. Requests begin in the order of their arrival, so a stop that follows a message finds the message.
//! 3. A client that does not read blocks only itself, and the number of bytes that wait for this client is limited: see
//!    [`output`].

mod carried_requests;
mod client;
mod output;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_jsonrpc::{
    FrameDecoder, FrameError, FrameLimits, IncomingMessage, IncomingRequest, IncomingRequests,
    Responder, RpcError, RpcId, encode_error_response,
};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkSpec};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lifecycle;
use crate::methods::{self, MethodAnswer, MethodCx, MethodResult};
use crate::server::CopilotServer;

pub(crate) use carried_requests::{ResponseChunkParams, ResponsePart, ResponseStartParams};
pub(crate) use client::{Client, ClientId, ClientRequestError};
pub(crate) use output::QueueClosed;

/// Maximum size of a message. A prompt with attachments has megabytes; a client that announces a larger body is broken
/// or hostile.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of concurrent requests of one client. Enough for a client with a thousand waiting sessions.
const REQUESTS_MAX: usize = 8 * 1024;

/// Maximum time, and maximum number of bytes, until a client has sent its token. Before this, the client must not
/// occupy connections and memory that other clients need.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const CONNECT_BYTES_MAX: usize = 64 * 1024;

const READ_BYTES: usize = 64 * 1024;

/// Methods that return a key which the client itself has stored. Their answers keep secret values.
const KEY_METHODS: [&str; 2] = ["mcp.config.list", "session.provider.getEndpoint"];

/// JSON-RPC code for a request that its sender has cancelled, as in the protocol of language servers.
const CANCELLED: i64 = -32800;

/// JSON-RPC code for a request that arrives before the client has sent its token.
const UNAUTHORISED: i64 = -32001;

/// Permission of a connection to use the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConnectionAccess {
    /// The client is the process that started this process, and is connected by standard input and output.
    #[default]
    Trusted,
    /// The client must send this token with `connect`.
    Token(Arc<str>),
}

/// Reason for the end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServedConnectionEnd {
    /// The client has closed the connection.
    Closed,
    /// The client sent unreadable input.
    Malformed(FrameError),
    /// Reading or writing failed.
    Failed(std::io::ErrorKind),
    /// The client did not send the token in time.
    Unauthorised,
    /// The server is being stopped.
    Stopped,
}

#[derive(Deserialize)]
struct CancelRequestParams {
    id: RpcId,
}

/// Maximum wait until the last answers are written. A client that has stopped reading must not delay the end.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);

/// Maximum wait until the open requests are answered at the end of a connection. They do not wait for anything then.
const LAST_ANSWERS_MAX: Duration = Duration::from_millis(200);

/// State of the reader of one connection.
struct ConnectionReader {
    server: CopilotServer,
    client: Arc<Client>,
    incoming: IncomingRequests,
    scope: Scope,
    /// Running requests that their sender can cancel.
    running: Arc<Mutex<HashMap<RpcId, CancellationToken>>>,
    /// Requests that are answered later and have no answer yet.
    unanswered: TaskTracker,
    /// Permit for a request with a large answer. Only one such request of the client runs at a time.
    large: Arc<Semaphore>,
    access: ConnectionAccess,
    is_connected: bool,
    /// Cancelled when the client may use the server.
    let_in: CancellationToken,
}

impl CopilotServer {
    /// Serves one client until it disconnects or the scope of its connection is stopped. Then detaches the client from
    /// its sessions.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client attached. Stop the scope of the connections instead.
    pub async fn serve(
        &self,
        mut input: impl AsyncRead + Unpin + Send,
        output: impl AsyncWrite + Unpin + Send,
        access: ConnectionAccess,
    ) -> ServedConnectionEnd {
        let (queue, writer) = output::output_queue();
        let client = Arc::new(Client::new(
            self.next_client_id(),
            queue.clone(),
            Arc::clone(self.secrets()),
        ));
        let label = format!("connection/{}", client.id.0);
        let Ok(scope) = self.connections().child(label, ScopeOptions::default()) else {
            return ServedConnectionEnd::Stopped;
        };
        let answers = queue.clone();
        let sink = Arc::new(move |answer| answers.answer(answer));
        let mut connection = ConnectionReader {
            server: self.clone(),
            client: Arc::clone(&client),
            incoming: IncomingRequests::new(REQUESTS_MAX, sink),
            scope: scope.clone(),
            running: Arc::default(),
            unanswered: TaskTracker::new(),
            large: Arc::new(Semaphore::new(1)),
            access,
            is_connected: false,
            let_in: CancellationToken::new(),
        };
        if connection.access == ConnectionAccess::Trusted {
            connection.let_in.cancel();
        }
        let (let_in, server) = (connection.let_in.clone(), self.clone());
        let notifying = async {
            // Sessions are named only to a client that may use them.
            let_in.cancelled().await;
            lifecycle::forward(server.lifecycle_events(), &client).await;
        };
        let mut writing = std::pin::pin!(writer.write_to(output));
        let (end, writes_on) = tokio::select! {
            biased;
            () = scope.stopped() => (ServedConnectionEnd::Stopped, true),
            written = &mut writing => match written {
                Err(error) => (ServedConnectionEnd::Failed(error.kind()), false),
                Ok(()) => (ServedConnectionEnd::Closed, false),
            },
            end = connection.read(&mut input) => (end, true),
            () = notifying => (ServedConnectionEnd::Closed, true),
        };
        self.detach_client(&client);
        let unanswered = connection.unanswered.clone();
        drop(connection);
        // A request may wait for its own client, for example for a file that the client stores. The stop ends this wait with
        // an error, before the waits for the client end as well.
        let cause = Cause::new(CauseKind::Disconnect).detail("its client is gone");
        let stop = scope.stop(StopRequest::new(Extent::Subtree, cause).grace(LAST_ANSWERS_MAX));
        unanswered.close();
        drop(timeout(LAST_ANSWERS_MAX, unanswered.wait()).await);
        client.outgoing.close();
        client.carried.close();
        queue.close();
        if writes_on {
            // The last answers, and the reason for the end of the connection, are still written. A client that has
            // closed its sending side may still read.
            drop(timeout(LAST_WRITES_MAX, writing).await);
        }
        drop(stop.receipt().await);
        // The detach is repeated, because a request in progress may have attached the client after the first detach.
        self.detach_client(&client);
        scope.close();
        end
    }
}

impl ConnectionReader {
    async fn read(&mut self, input: &mut (impl AsyncRead + Unpin)) -> ServedConnectionEnd {
        let mut decoder = FrameDecoder::new(FrameLimits {
            header_bytes_max: HEADER_BYTES_MAX,
            body_bytes_max: BODY_BYTES_MAX,
        });
        let mut chunk = vec![0; READ_BYTES];
        let (connect_by, mut bytes_read) = (Instant::now() + CONNECT_MAX, 0);
        loop {
            let is_let_in = self.is_connected || self.access == ConnectionAccess::Trusted;
            let read = if is_let_in {
                input.read(&mut chunk).await
            } else if bytes_read > CONNECT_BYTES_MAX {
                return ServedConnectionEnd::Unauthorised;
            } else {
                match timeout_at(connect_by, input.read(&mut chunk)).await {
                    Ok(read) => read,
                    Err(_elapsed) => return ServedConnectionEnd::Unauthorised,
                }
            };
            let read = match read {
                Ok(0) => return ServedConnectionEnd::Closed,
                Ok(read) => read,
                Err(error) => return ServedConnectionEnd::Failed(error.kind()),
            };
            bytes_read += read;
            decoder.push(chunk.get(..read).unwrap_or_default());
            loop {
                match decoder.next_frame() {
                    Ok(Some(body)) => {
                        self.client.output.room_for_answers().await;
                        if self.message(&body).is_err() {
                            return ServedConnectionEnd::Closed;
                        }
                    }
                    Ok(None) => break,
                    Err(malformed) => {
                        let error = RpcError::parse_error(malformed.to_string());
                        let body = encode_error_response(None, &error);
                        let _sent_or_gone = self.client.output.message(&body).await;
                        return ServedConnectionEnd::Malformed(malformed);
                    }
                }
            }
        }
    }

    /// Handles one message.
    fn message(&mut self, body: &[u8]) -> Result<(), QueueClosed> {
        match IncomingMessage::parse(body) {
            Ok(IncomingMessage::Request(request)) => self.request(request),
            Ok(IncomingMessage::Notification { method, params }) => {
                if method == "$/cancelRequest"
                    && let Some(params) = params
                    && let Ok(CancelRequestParams { id }) = serde_json::from_str(params.get())
                    && let Some(token) = self.running.lock().get(&id)
                {
                    token.cancel();
                }
                Ok(())
            }
            Ok(IncomingMessage::Response { id, result }) => {
                if let Some(id) = id {
                    // If no request waits for this answer, the answer has no effect.
                    let _delivered_or_unknown = self.client.outgoing.complete(&id, result);
                }
                Ok(())
            }
            Err(malformed) if malformed.is_response => {
                if let Some(id) = malformed.id {
                    let failed = Err(malformed.error);
                    let _delivered_or_unknown = self.client.outgoing.complete(&id, failed);
                }
                Ok(())
            }
            Err(malformed) => {
                let body = encode_error_response(malformed.id.as_ref(), &malformed.error);
                self.client.output.refusal(&body)
            }
        }
    }

    fn request(&mut self, request: IncomingRequest) -> Result<(), QueueClosed> {
        let IncomingRequest { id, method, params } = request;
        let responder = match self.incoming.accept(id.clone()) {
            Ok(responder) => responder,
            Err(refused) => {
                let body = encode_error_response(Some(&id), &refused);
                return self.client.output.refusal(&body);
            }
        };
        if let Err(refused) = self.authorise(&method, params.as_deref()) {
            responder.respond(Err::<(), _>(refused));
            return Ok(());
        }
        let cx = MethodCx {
            server: &self.server,
            client: &self.client,
        };
        match methods::begin(&cx, &method, params.as_deref()) {
            MethodAnswer::Now(result) => responder.respond(self.filtered(&method)(result)),
            MethodAnswer::Later(answer) => self.run(method, responder, id, answer),
            MethodAnswer::Large(answer) => {
                let (large, output) = (Arc::clone(&self.large), self.client.output.clone());
                let in_turn = async move {
                    // The semaphore is never closed.
                    let permit = large.acquire_owned().await;
                    output.room_for_answers().await;
                    let result = answer.await;
                    drop(permit);
                    result
                };
                self.run(method, responder, id, Box::pin(in_turn));
            }
        }
        Ok(())
    }

    /// Returns the filter of the answer to a method, which removes the secret values of the programs.
    fn filtered(&self, method: &str) -> impl FnOnce(MethodResult) -> MethodResult + Send + 'static {
        let secrets = (!KEY_METHODS.contains(&method)).then(|| Arc::clone(&self.client.secrets));
        move |result| match (secrets, result) {
            (Some(secrets), Ok(answer)) => Ok(secrets.redact(answer)),
            (_, result) => result,
        }
    }

    /// Runs a request that is answered later. Its sender can cancel the request.
    fn run(
        &self,
        method: String,
        responder: Responder,
        id: RpcId,
        answer: BoxFuture<'static, MethodResult>,
    ) {
        let cancelled = CancellationToken::new();
        self.running.lock().insert(id.clone(), cancelled.clone());
        let running = Arc::clone(&self.running);
        let filtered = self.filtered(&method);
        let is_unanswered = self.unanswered.token();
        let spec = WorkSpec::new(ItemKind::Future, method);
        // If the scope refuses the work, the responder is dropped. A dropped responder sends an error to the client.
        let spawned = self.scope.spawn(spec, move |cx| async move {
            let _is_unanswered = is_unanswered;
            let result = tokio::select! {
                biased;
                result = answer => result,
                () = cancelled.cancelled() => {
                    Err(RpcError::new(CANCELLED, "the request was cancelled"))
                }
                _stopped = cx.stopped_at("request of a client") => {
                    Err(RpcError::overloaded(
                        "the connection ends before the result of the request is known: connect again, and check whether \
                         the request has had an effect",
                    ))
                }
            };
            running.lock().remove(&id);
            responder.respond(filtered(result));
        });
        drop(spawned);
    }

    /// Until the client has sent its token, permits only the methods `connect` and `ping`.
    fn authorise(&mut self, method: &str, params: Option<&RawValue>) -> Result<(), RpcError> {
        let ConnectionAccess::Token(token) = &self.access else {
            return Ok(());
        };
        if self.is_connected || method == "ping" {
            return Ok(());
        }
        let given = params.filter(|_| method == "connect").and_then(|params| {
            let params: ConnectParams = serde_json::from_str(params.get()).ok()?;
            params.token
        });
        let message = match given {
            Some(given) if is_same(&given, token) => {
                self.is_connected = true;
                self.let_in.cancel();
                return Ok(());
            }
            Some(_) => {
                "AUTHENTICATION_FAILED: the token is wrong: it is in COPILOT_CONNECTION_TOKEN of the server"
            }
            None => {
                "AUTHENTICATION_FAILED: send `connect` with the connection token first: it is in COPILOT_CONNECTION_TOKEN of the server"
            }
        };
        Err(RpcError::new(UNAUTHORISED, message))
    }
}

#[derive(Deserialize)]
struct ConnectParams {
    token: Option<String>,
}

/// True if both tokens are equal. Compares digests, so that the duration reveals nothing about the token.
fn is_same(given: &str, token: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(token)
}
