//! Connection of a requesting process: reads the requests of this process, starts them in order, and answers them.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::NothingToStop;
use allstop_core::{SessionId, TaskId};
use allstop_host::Place;
use allstop_jsonrpc::{
    FrameDecoder, FrameLimits, IncomingMessage, IncomingRequest, IncomingRequests, QueuedAnswer,
    Responder, RpcError, encode_error_response, encode_frame, encode_notification,
};
use allstop_session::{AnswerResult, StopTarget};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::owned::{OwnedSession, OwnedSessions, WATCHERS_MAX};
use crate::owned_commands::OwnedCommands;
use crate::protocol::{
    ACCEPTED, ANSWER, AcceptedParams, AnswerParams, AnswerReport, EVENT, LIST, RELEASE,
    ReleaseParams, RemoteExtent, RemoteStopParams, STOP, StopResult, WATCH, WatchParams,
    WatchResult, not_open_error,
};
use crate::watch_event::WatchEvent;

/// Limits of a request. A request contains a session id and a few words.
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 1_024,
    body_bytes_max: 64 * 1_024,
};

/// Maximum number of unanswered requests per connection.
const REQUESTS_MAX: usize = 1_024;

const READ_BYTES: usize = 8 * 1_024;

/// Time in which the peer must take an answer or an event. The peer is a command on the same machine, so it normally
/// takes them at once. A stopped peer must not keep its place.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// Output queue of a connection. The requests in progress bound the length of the queue: each request has one answer
/// and at most one notification.
type Output = mpsc::UnboundedSender<RemoteOutput>;

enum RemoteOutput {
    Answer(QueuedAnswer, TaskTrackerToken),
    Frame(Vec<u8>),
}

/// An answer that is not ready yet.
type LaterAnswer = BoxFuture<'static, (Responder, Result<Value, RpcError>, TaskTrackerToken)>;

pub(crate) struct RemoteConnection {
    owned: OwnedSessions,
    requests: IncomingRequests,
    /// Requests whose answer is not completely written yet.
    in_flight: TaskTracker,
    output: Output,
    queued: mpsc::UnboundedReceiver<RemoteOutput>,
    later: FuturesUnordered<LaterAnswer>,
    watch: Option<Watch>,
    place: Place,
}

/// The peer's watch of a session: the events to send, and one of the permits that limit the number of watchers.
struct Watch {
    events: broadcast::Receiver<Arc<WatchEvent>>,
    _permit: OwnedSemaphorePermit,
}

impl RemoteConnection {
    pub(crate) fn new(owned: OwnedSessions, in_flight: TaskTracker, place: Place) -> Self {
        let (output, queued) = mpsc::unbounded_channel();
        let (answers, tracker) = (output.clone(), in_flight.clone());
        let sink = Arc::new(move |answer| {
            // The token is dropped after the answer is written, or after the peer has disconnected.
            drop(answers.send(RemoteOutput::Answer(answer, tracker.token())));
        });
        Self {
            owned,
            requests: IncomingRequests::new(REQUESTS_MAX, sink),
            in_flight,
            output,
            queued,
            later: FuturesUnordered::new(),
            watch: None,
            place,
        }
    }

    /// Serves the peer until it disconnects or sends an unreadable message. Stops that the peer requested continue.
    ///
    /// # Cancel safety
    /// Dropping the future drops the unwritten answers.
    pub(crate) async fn serve(mut self, stream: UnixStream) {
        let (mut read, mut write) = stream.into_split();
        let mut decoder = FrameDecoder::new(LIMITS);
        let mut chunk = vec![0; READ_BYTES];
        let mut is_read = true;
        loop {
            tokio::select! {
                biased;
                Some(output) = self.queued.recv() => {
                    let frame = match &output {
                        RemoteOutput::Answer(answer, _token) => answer.frame(),
                        RemoteOutput::Frame(frame) => frame,
                    };
                    if !write_frame(&mut write, frame).await {
                        return;
                    }
                }
                Some((responder, result, in_flight)) = self.later.next() => {
                    responder.respond(result);
                    drop(in_flight);
                }
                len = read.read(&mut chunk), if is_read => {
                    let Ok(len) = len else { return };
                    decoder.push(chunk.get(..len).unwrap_or_default());
                    is_read = len > 0 && self.frames(&mut decoder);
                }
                // A write waits only for this peer. Events that the peer misses during the wait are counted, and the
                // peer receives their number.
                event = next_event(&mut self.watch), if self.watch.is_some() => {
                    let is_last = matches!(*event, WatchEvent::Ended);
                    let Ok(frame) = encode_notification(EVENT, &*event) else { continue };
                    if !write_frame(&mut write, &encode_frame(&frame)).await || is_last {
                        return;
                    }
                }
                else => return,
            }
            // A watcher keeps its side of the connection open. The end of the input therefore means that the watcher is
            // gone.
            if !is_read && self.watch.is_some() {
                return;
            }
            let is_idle = self.later.is_empty() && self.queued.is_empty();
            if !is_read && is_idle {
                return;
            }
            self.place.set_busy(!is_idle || self.watch.is_some());
        }
    }

    /// Processes all complete frames. False if no more input can be read.
    fn frames(&mut self, decoder: &mut FrameDecoder) -> bool {
        loop {
            match decoder.next_frame() {
                Ok(Some(body)) => self.message(&body),
                Ok(None) => return true,
                Err(error) => {
                    self.send_frame(&encode_error_response(
                        None,
                        &RpcError::parse_error(error.to_string()),
                    ));
                    return false;
                }
            }
        }
    }

    fn message(&mut self, body: &[u8]) {
        let request = match IncomingMessage::parse(body) {
            Ok(IncomingMessage::Request(request)) => request,
            // Ignores responses, because this side sends no requests, and notifications, because they have no answer.
            Ok(_) => return,
            Err(malformed) => {
                let answer = encode_error_response(malformed.id.as_ref(), &malformed.error);
                return self.send_frame(&answer);
            }
        };
        let IncomingRequest { id, method, params } = request;
        match self.requests.accept(id.clone()) {
            Ok(responder) => self.request(&method, params.as_deref(), responder),
            Err(refused) => self.send_frame(&encode_error_response(Some(&id), &refused)),
        }
    }

    fn send_frame(&self, body: &[u8]) {
        // Cannot fail: the receiver belongs to this connection.
        drop(self.output.send(RemoteOutput::Frame(encode_frame(body))));
    }

    fn request(&mut self, method: &str, params: Option<&RawValue>, responder: Responder) {
        match method {
            LIST => responder.respond(Ok(self.owned.report())),
            STOP => match read::<RemoteStopParams>(params) {
                Ok(params) => self.stop(params, responder),
                Err(error) => responder.respond(Err::<(), _>(error)),
            },
            WATCH => match read::<WatchParams>(params) {
                Ok(params) => self.watch(&params, responder),
                Err(error) => responder.respond(Err::<(), _>(error)),
            },
            RELEASE => match read::<ReleaseParams>(params) {
                Ok(params) => self.release(&params, responder),
                Err(error) => responder.respond(Err::<(), _>(error)),
            },
            ANSWER => match read::<AnswerParams>(params) {
                Ok(params) => self.answer(params, responder),
                Err(error) => responder.respond(Err::<(), _>(error)),
            },
            other => responder.respond(Err::<(), _>(RpcError::method_not_found(other))),
        }
    }

    fn session(&self, id: &SessionId) -> Result<Arc<OwnedSession>, RpcError> {
        self.owned.find(id).ok_or_else(|| not_open_error(id))
    }

    fn watch(&mut self, params: &WatchParams, responder: Responder) {
        let owned = match self.session(&params.session_id) {
            Ok(owned) => owned,
            Err(error) => return responder.respond(Err::<(), _>(error)),
        };
        // A connection has one watch. A second request replaces the first.
        self.watch = None;
        let Some(permit) = self.owned.acquire_watch_permit() else {
            let message = format!("{WATCHERS_MAX} terminals watch it already");
            return responder.respond(Err::<(), _>(RpcError::overloaded(message)));
        };
        let Some((events, rx)) = owned.watched.attach() else {
            let message = format!("session {} is closed", params.session_id);
            return responder.respond(Err::<(), _>(RpcError::invalid_params(message)));
        };
        // The answer is queued here, so it is written before any event.
        responder.respond(Ok(WatchResult { events }));
        self.watch = Some(Watch {
            events: rx,
            _permit: permit,
        });
    }

    fn release(&mut self, params: &ReleaseParams, responder: Responder) {
        let owned = match self.session(&params.session_id) {
            Ok(owned) if owned.is_of_client() => owned,
            Ok(_) => {
                let message = "a terminal has the session open";
                return responder.respond(Err::<(), _>(RpcError::invalid_params(message)));
            }
            Err(error) => return responder.respond(Err::<(), _>(error)),
        };
        let in_flight = self.in_flight.token();
        self.later.push(Box::pin(async move {
            let released = owned.session.release().await;
            let result = released
                .map(|()| Value::Object(serde_json::Map::new()))
                .map_err(|error| RpcError::overloaded(error.to_string()));
            (responder, result, in_flight)
        }));
    }

    fn answer(&self, params: AnswerParams, responder: Responder) {
        let owned = match self.session(&params.session_id) {
            Ok(owned) => owned,
            Err(error) => return responder.respond(Err::<(), _>(error)),
        };
        if !owned.takes_answers() {
            let message = "only the client of the task answers its questions";
            return responder.respond(Err::<(), _>(RpcError::invalid_params(message)));
        }
        let watched = &owned.watched;
        let (id, by) = (params.question_id, params.by);
        // The answerer is stored before the session receives the answer, because the session's terminal may show the
        // answer immediately.
        watched.remember_answerer(id.clone(), by.clone());
        let is_taken = owned.session.answer(&id, params.answer.into()) == AnswerResult::Taken;
        if !is_taken {
            watched.forget_answerer(&id, &by);
        }
        responder.respond(Ok(AnswerReport { is_taken }));
    }

    /// Stops a command that belongs to no session.
    fn stop_command(
        &self,
        commands: &Arc<dyn OwnedCommands>,
        params: RemoteStopParams,
        responder: Responder,
    ) {
        let cause = params.cause();
        let id = TaskId::new(params.session_id.as_str());
        let stopping = if params.preview {
            commands.preview(id, cause)
        } else {
            commands.stop(id, cause, params.now)
        };
        let in_flight = self.in_flight.token();
        self.later.push(Box::pin(async move {
            let result = match stopping.await {
                Some(receipt) => {
                    let stop_reason = None;
                    let result = StopResult {
                        receipt,
                        stop_reason,
                    };
                    Ok(serde_json::to_value(result).unwrap_or_default())
                }
                None => Err(not_open_error(&params.session_id)),
            };
            (responder, result, in_flight)
        }));
    }

    fn stop(&mut self, params: RemoteStopParams, responder: Responder) {
        if let Some(commands) = self.owned.commands() {
            return self.stop_command(commands, params, responder);
        }
        let owned = match self.session(&params.session_id) {
            Ok(owned) => owned,
            Err(error) => return responder.respond(Err::<(), _>(error)),
        };
        let cause = params.cause();
        let target = match (params.call, params.extent) {
            (Some(call), _) => {
                let works = owned.session.background();
                match works.iter().find(|work| work.id.as_str() == call.as_str()) {
                    Some(work) => StopTarget::Background(work.id.clone()),
                    None => StopTarget::Call(call),
                }
            }
            (None, RemoteExtent::Turn) => StopTarget::Turn,
            (None, RemoteExtent::TurnAndBackground) => StopTarget::TurnAndBackground,
            (None, RemoteExtent::Session) if owned.is_of_client() => {
                let message = "its client closes the session; `allstop stop` without --extent stops all of its work";
                return responder.respond(Err::<(), _>(RpcError::invalid_params(message)));
            }
            (None, RemoteExtent::Session) => StopTarget::Session,
        };
        if params.preview {
            let receipt = owned.session.preview(&target);
            return responder.respond(Ok(StopResult {
                receipt,
                stop_reason: None,
            }));
        }
        let accepting = owned.accepting.lock();
        let stop = owned.session.stop(&target, cause);
        let stop_id = stop.request().stop_id.clone();
        if let Ok(accepted) = encode_notification(ACCEPTED, &AcceptedParams { stop_id }) {
            self.send_frame(&accepted);
        }
        if params.now {
            stop.force();
        }
        if !stop.found_nothing() {
            let is_of_part = matches!(target, StopTarget::Call(_) | StopTarget::Background(_));
            owned.notify_stop(&stop, !is_of_part);
        }
        drop(accepting);
        let in_flight = self.in_flight.token();
        self.later.push(Box::pin(async move {
            let receipt = stop.receipt().await;
            let has_ended = receipt.outcome() == Some(NothingToStop::AlreadyEnded);
            let last = has_ended.then(|| owned.session.last_outcome()).flatten();
            let result = serde_json::to_value(StopResult {
                receipt: (*receipt).clone(),
                stop_reason: last.map(|last| last.stop_reason),
            });
            (responder, Ok(result.unwrap_or_default()), in_flight)
        }));
    }
}

/// The next event of a watch. Missed events and the end of the session are events too.
///
/// Cancel safe.
async fn next_event(watch: &mut Option<Watch>) -> Arc<WatchEvent> {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    match watch.events.recv().await {
        Ok(event) => event,
        Err(RecvError::Lagged(count)) => Arc::new(WatchEvent::Missed { count }),
        Err(RecvError::Closed) => Arc::new(WatchEvent::Ended),
    }
}

/// Writes a frame. False if the peer has disconnected or does not take the frame in its time.
async fn write_frame(write: &mut OwnedWriteHalf, frame: &[u8]) -> bool {
    let written = timeout(WRITE_TIME_MAX, write.write_all(frame)).await;
    matches!(written, Ok(Ok(())))
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| RpcError::invalid_params(error.to_string()))
}
