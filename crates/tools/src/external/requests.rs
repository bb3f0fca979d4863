//! The handler's side of external tools: events from calls, and the handler's replies. The handler is the code, usually
//! in another process, that runs the calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Cause, SessionId, TraceContext};
use serde_json::Value;

use super::pending::{PendingRequests, RequestEnd};
use crate::tool::{ToolError, ToolOutput};

/// Default maximum number of calls that wait for the handler. One step of a model starts fewer calls. The number is low
/// enough that a handler that has stopped reading is soon noticed.
pub const QUEUE_LEN_MAX: usize = 64;

/// Id of a request, unique per handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A call for the handler to run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExternalRequest {
    /// Id that the answer must name.
    pub request_id: RequestId,
    /// Session of the call.
    pub session_id: SessionId,
    /// Id of the call, unique in its session.
    pub call_id: CallId,
    /// Name of the tool.
    pub name: Arc<str>,
    /// Arguments, parsed and validated.
    pub arguments: Arc<Value>,
    /// W3C trace context. A stop does not change the trace context.
    pub trace: Option<TraceContext>,
    /// Time from the request to the deadline that stops the call; `None` if the call has no deadline.
    pub time_left: Option<Duration>,
}

/// Event for the handler.
#[derive(Debug, Clone)]
pub enum ExternalEvent {
    /// A call to run.
    Call(ExternalRequest),
    /// Stop of a call that the handler has taken. The handler should end the call, and then either confirm the end or
    /// answer the request.
    Cancelled {
        /// Request that the handler should end.
        request_id: RequestId,
        /// Cause of the stop.
        cause: Cause,
    },
}

/// Result of a reply from the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The call received the reply.
    Delivered,
    /// The call had already ended.
    Late,
    /// No such request exists, or the request was already answered, or the request ended so long ago that it was
    /// forgotten.
    Unknown,
}

/// An answer that arrives after the end of its call. Such an answer is not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateAnswer {
    /// Session of the call.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub name: Arc<str>,
}

/// Options of external tools.
#[derive(Clone)]
#[non_exhaustive]
pub struct ExternalOptions {
    /// Maximum number of calls that wait for the handler. A further call gets an error result.
    pub queue_len_max: usize,
    /// True if the handler can confirm a cancellation. A stopped call then waits for the confirmation until the stop
    /// uses force. False if the handler's protocol has no message for a confirmation. A stopped call then ends
    /// immediately, and its item in the receipt has the state `unreachable`.
    pub confirms_cancellation: bool,
    /// Callback for late answers. The thread that delivers the answer runs the callback, so it must not block.
    pub on_late_answer: Arc<dyn Fn(LateAnswer) + Send + Sync>,
}

impl Default for ExternalOptions {
    fn default() -> Self {
        Self {
            queue_len_max: QUEUE_LEN_MAX,
            confirms_cancellation: true,
            on_late_answer: Arc::new(|_| {}),
        }
    }
}

impl ExternalOptions {
    /// Sets the maximum number of calls that wait for the handler.
    #[must_use]
    pub fn queue_len_max(mut self, queue_len_max: usize) -> Self {
        self.queue_len_max = queue_len_max;
        self
    }

    /// Sets if the handler can confirm a cancellation.
    #[must_use]
    pub fn confirms_cancellation(mut self, confirms_cancellation: bool) -> Self {
        self.confirms_cancellation = confirms_cancellation;
        self
    }

    /// Sets the callback for late answers.
    #[must_use]
    pub fn on_late_answer(mut self, on_late_answer: Arc<dyn Fn(LateAnswer) + Send + Sync>) -> Self {
        self.on_late_answer = on_late_answer;
        self
    }
}

impl fmt::Debug for ExternalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalOptions")
            .field("queue_len_max", &self.queue_len_max)
            .field("confirms_cancellation", &self.confirms_cancellation)
            .finish_non_exhaustive()
    }
}

/// The stream of requests, in order. Dropping the stream disconnects the handler permanently.
#[derive(Debug)]
#[must_use = "without it the handler is gone for good"]
pub struct ExternalRequests {
    handler: ExternalHandler,
}

impl ExternalRequests {
    pub(super) fn new(requests: Arc<PendingRequests>) -> Self {
        Self {
            handler: ExternalHandler { requests },
        }
    }

    /// Handle for replies, which can be used on every thread.
    pub fn handler(&self) -> ExternalHandler {
        self.handler.clone()
    }

    /// Returns the next event; `None` after [`ExternalHandler::disconnect`].
    ///
    /// # Cancel safety
    /// Cancel safe: an event leaves the queue only in the poll that returns the event.
    pub async fn next(&mut self) -> Option<ExternalEvent> {
        self.handler.requests.next().await
    }
}

impl Drop for ExternalRequests {
    fn drop(&mut self) {
        self.handler.disconnect();
    }
}

/// Handle for the handler's replies. Clones share one handler.
#[derive(Debug, Clone)]
pub struct ExternalHandler {
    requests: Arc<PendingRequests>,
}

impl ExternalHandler {
    /// Answers a request.
    pub fn answer(&self, request: RequestId, answer: Result<ToolOutput, ToolError>) -> Delivery {
        self.requests.end(request, RequestEnd::Answered(answer))
    }

    /// Confirms the end of a cancelled request: no part of the request runs any more.
    pub fn confirm_cancelled(&self, request: RequestId) -> Delivery {
        self.requests.end(request, RequestEnd::ConfirmedCancelled)
    }

    /// Sends a piece of output of a running call. The piece also counts as a heartbeat: a sign that the call is active.
    pub fn progress(&self, request: RequestId, text: &str) -> Delivery {
        self.requests.progress(request, text)
    }

    /// True if the request waits for an answer and was not cancelled. The event of a cancellation may follow later.
    pub fn is_open(&self, request: RequestId) -> bool {
        self.requests.is_open(request)
    }

    /// Number of late answers.
    pub fn late_answers(&self) -> u64 {
        self.requests.late_answers()
    }

    /// Disconnects the handler permanently: running and later calls end with an error result.
    pub fn disconnect(&self) {
        self.requests.disconnect();
    }
}
