//! The handler's end: what it is asked, and what it may say.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Cause, SessionId};
use serde_json::Value;

use super::desk::{Desk, End};
use crate::tool::{ToolError, ToolOutput};

/// Calls that wait to be taken, unless said otherwise: more than any step of a model asks for, and so few that a
/// handler that has stopped reading is noticed soon.
pub const QUEUE_LEN_MAX: usize = 64;

/// Names one request. No two of one handler are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A call that the handler is asked to run.
#[derive(Debug, Clone)]
pub struct ExternalRequest {
    /// What the answer names.
    pub request_id: RequestId,
    /// The session.
    pub session_id: SessionId,
    /// The call, unique in its session.
    pub call_id: CallId,
    /// The tool's name.
    pub name: Arc<str>,
    /// Parsed and checked.
    pub arguments: Arc<Value>,
    /// W3C trace context (`traceparent`); a stop never cancels it.
    pub trace: Option<Arc<str>>,
    /// How long until the call is stopped by itself, from when it was made; none without a deadline.
    pub time_left: Option<Duration>,
}

/// What the handler hears.
#[derive(Debug, Clone)]
pub enum ExternalEvent {
    /// A call to run.
    Call(ExternalRequest),
    /// A call that it has taken is being stopped: it should end it, and confirm that or answer.
    Cancelled {
        /// Which.
        request_id: RequestId,
        /// Why.
        cause: Cause,
    },
}

/// What became of something that the handler said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The call has it.
    Delivered,
    /// The call had ended before.
    Late,
    /// There is no such request, it was answered, or it is long forgotten.
    Unknown,
}

/// An answer that came after its call had ended. Nobody gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateAnswer {
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub name: Arc<str>,
}

/// Bounds, and who hears of late answers.
#[derive(Clone)]
pub struct ExternalOptions {
    /// Calls that may wait to be taken; one more is an error result.
    pub queue_len_max: usize,
    /// Hears of late answers, on the thread that brings them. Must not block.
    pub on_late_answer: Arc<dyn Fn(LateAnswer) + Send + Sync>,
}

impl Default for ExternalOptions {
    fn default() -> Self {
        Self {
            queue_len_max: QUEUE_LEN_MAX,
            on_late_answer: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ExternalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalOptions")
            .field("queue_len_max", &self.queue_len_max)
            .finish_non_exhaustive()
    }
}

/// The requests, in order. Dropping it says that the handler is gone for good.
#[derive(Debug)]
#[must_use = "without it the handler is gone for good"]
pub struct ExternalRequests {
    handler: ExternalHandler,
}

impl ExternalRequests {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self {
            handler: ExternalHandler { desk },
        }
    }

    /// What the handler says things with, from anywhere.
    pub fn handler(&self) -> ExternalHandler {
        self.handler.clone()
    }

    /// The next event; `None` after [`ExternalHandler::disconnect`].
    ///
    /// # Cancel safety
    /// Cancel safe: an event is taken by the poll that returns it.
    pub async fn next(&mut self) -> Option<ExternalEvent> {
        self.handler.desk.next().await
    }
}

impl Drop for ExternalRequests {
    fn drop(&mut self) {
        self.handler.disconnect();
    }
}

/// Answers requests. Clones are the same handler.
#[derive(Debug, Clone)]
pub struct ExternalHandler {
    desk: Arc<Desk>,
}

impl ExternalHandler {
    /// Answers a request.
    pub fn answer(&self, request: RequestId, answer: Result<ToolOutput, ToolError>) -> Delivery {
        self.desk.end(request, End::Answered(answer))
    }

    /// Says that a request was ended, as it was asked, and that nothing of it runs any more.
    pub fn confirm_cancelled(&self, request: RequestId) -> Delivery {
        self.desk.end(request, End::ConfirmedCancelled)
    }

    /// Shows a piece of output while the call runs: a sign of life.
    pub fn progress(&self, request: RequestId, text: &str) -> Delivery {
        self.desk.progress(request, text)
    }

    /// How many answers came after their call had ended.
    pub fn late_answers(&self) -> u64 {
        self.desk.late_answers()
    }

    /// Says that the handler is gone for good: running calls end with an error result, later ones too.
    pub fn disconnect(&self) {
        self.desk.disconnect();
    }
}
