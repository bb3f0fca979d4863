//! One reply of a scripted model.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Usage, message::Arguments};
use serde_json::Value;

use crate::{FinishReason, ModelError, ModelErrorKind};

/// Length of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// For this time.
    For(Duration),
    /// Until the call is dropped.
    Forever,
}

impl Pause {
    pub(super) async fn wait(self) {
        match self {
            Self::For(duration) => tokio::time::sleep(duration).await,
            Self::Forever => std::future::pending().await,
        }
    }
}

/// A reply with its events, pauses and errors. Call the builder methods in the order in which the stream is to contain
/// the events, pauses and errors.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub(super) connect_stall: Option<Pause>,
    /// Error that replaces the reply, and the number of requests that fail; `None` if all requests fail.
    pub(super) error: Option<(ModelError, Option<u32>)>,
    pub(super) steps: Vec<ReplyStep>,
    pub(super) finish: Option<FinishReason>,
}

/// One step of a reply.
#[derive(Debug, Clone)]
pub(super) enum ReplyStep {
    Text(Arc<str>),
    Reasoning(Arc<str>),
    Progress {
        bytes: usize,
    },
    Call {
        id: Option<CallId>,
        name: Arc<str>,
        arguments: Arguments,
    },
    Usage(Usage),
    Pause(Pause),
    /// Fails the stream. There is no end marker.
    Fail(ModelError),
}

impl Reply {
    /// A reply with this text, in one piece.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::default().and_text(text)
    }

    /// A reply for the case that the provider always refuses the request.
    pub fn error(error: ModelError) -> Self {
        Self {
            error: Some((error, None)),
            ..Self::default()
        }
    }

    /// Fails the first `times` requests with this error.
    #[must_use]
    pub fn failing_first(mut self, times: u32, error: ModelError) -> Self {
        self.error = Some((error, Some(times)));
        self
    }

    /// Hangs before the provider accepts the request.
    #[must_use]
    pub fn stalling_at_connect(mut self, pause: Pause) -> Self {
        self.connect_stall = Some(pause);
        self
    }

    /// Adds a piece of text.
    #[must_use]
    pub fn and_text(self, text: impl Into<Arc<str>>) -> Self {
        self.step(ReplyStep::Text(text.into()))
    }

    /// Adds a piece of reasoning.
    #[must_use]
    pub fn and_reasoning(self, text: impl Into<Arc<str>>) -> Self {
        self.step(ReplyStep::Reasoning(text.into()))
    }

    /// Adds a tool call.
    #[must_use]
    pub fn call(self, tool: impl Into<Arc<str>>, arguments: Value) -> Self {
        let name = tool.into();
        self.step(ReplyStep::Call {
            id: None,
            name,
            arguments: Arguments::Json(arguments.into()),
        })
    }

    /// Adds a tool call whose arguments are not JSON.
    #[must_use]
    pub fn malformed_call(self, tool: impl Into<Arc<str>>, arguments: impl Into<String>) -> Self {
        let name = tool.into();
        self.step(ReplyStep::Call {
            id: None,
            name,
            arguments: Arguments::Malformed(arguments.into().into()),
        })
    }

    /// Adds a pause.
    #[must_use]
    pub fn pause(self, pause: Pause) -> Self {
        self.step(ReplyStep::Pause(pause))
    }

    /// Adds the usage that the provider reports. Without this method, no usage arrives. Many servers also report no
    /// usage.
    #[must_use]
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.step(ReplyStep::Usage(Usage {
            input_tokens,
            cached_input_tokens: 0,
            cache_write_input_tokens: 0,
            output_tokens,
            estimated: false,
        }))
    }

    /// Ends the reply with this finish reason instead of [`FinishReason::Done`].
    #[must_use]
    pub fn finish(mut self, reason: FinishReason) -> Self {
        self.finish = Some(reason);
        self
    }

    /// Cuts the stream off at this point.
    #[must_use]
    pub fn disconnect(self) -> Self {
        self.fail(cut())
    }

    /// Fails the stream with an error at this point.
    #[must_use]
    pub fn fail(self, error: ModelError) -> Self {
        self.step(ReplyStep::Fail(error))
    }

    pub(super) fn step(mut self, step: ReplyStep) -> Self {
        self.steps.push(step);
        self
    }
}

impl<T: Into<Arc<str>>> From<T> for Reply {
    fn from(text: T) -> Self {
        Self::text(text)
    }
}

/// Error of a stream that was cut off.
pub(super) fn cut() -> ModelError {
    ModelError::new(
        ModelErrorKind::Disconnected,
        "the stream ended without the provider's end marker",
    )
}
