//! One reply of a scripted model.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Usage, message::Arguments};
use serde_json::Value;

use crate::{FinishReason, ModelError, ModelErrorKind};

/// How long something hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// This long, then it goes on.
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

/// One reply: what arrives, when, and what goes wrong. Built left to right, in the order in which it is streamed.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub(super) connect_stall: Option<Pause>,
    /// The error that answers instead, and how often; `None` means always.
    pub(super) error: Option<(ModelError, Option<u32>)>,
    pub(super) steps: Vec<Step>,
    pub(super) finish: Option<FinishReason>,
}

/// One thing that a reply does.
#[derive(Debug, Clone)]
pub(super) enum Step {
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
    /// Ends the stream without its end marker.
    Fail(ModelError),
}

impl Reply {
    /// A reply that is this text, in one piece.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::default().and_text(text)
    }

    /// A request that the provider refuses, each time.
    pub fn error(error: ModelError) -> Self {
        Self {
            error: Some((error, None)),
            ..Self::default()
        }
    }

    /// The same, but the first `times` requests for it fail with this error.
    #[must_use]
    pub fn failing_first(mut self, times: u32, error: ModelError) -> Self {
        self.error = Some((error, Some(times)));
        self
    }

    /// A connection that hangs before the provider accepts the request.
    #[must_use]
    pub fn stalling_at_connect(mut self, pause: Pause) -> Self {
        self.connect_stall = Some(pause);
        self
    }

    /// The same, followed by this piece of text.
    #[must_use]
    pub fn and_text(self, text: impl Into<Arc<str>>) -> Self {
        self.step(Step::Text(text.into()))
    }

    /// The same, followed by this piece of reasoning.
    #[must_use]
    pub fn and_reasoning(self, text: impl Into<Arc<str>>) -> Self {
        self.step(Step::Reasoning(text.into()))
    }

    /// The same, followed by a tool call.
    #[must_use]
    pub fn call(self, tool: impl Into<Arc<str>>, arguments: Value) -> Self {
        let name = tool.into();
        self.step(Step::Call {
            id: None,
            name,
            arguments: Arguments::Json(arguments.into()),
        })
    }

    /// The same, followed by a tool call whose arguments are not JSON.
    #[must_use]
    pub fn malformed_call(self, tool: impl Into<Arc<str>>, arguments: impl Into<String>) -> Self {
        let name = tool.into();
        self.step(Step::Call {
            id: None,
            name,
            arguments: Arguments::Malformed(arguments.into().into()),
        })
    }

    /// The same, with a pause here.
    #[must_use]
    pub fn pause(self, pause: Pause) -> Self {
        self.step(Step::Pause(pause))
    }

    /// The same, with what the provider says it cost. Without it no usage arrives, as with many real servers.
    #[must_use]
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.step(Step::Usage(Usage {
            input_tokens,
            output_tokens,
            estimated: false,
        }))
    }

    /// The same, ending for this reason instead of being done.
    #[must_use]
    pub fn finish(mut self, reason: FinishReason) -> Self {
        self.finish = Some(reason);
        self
    }

    /// The same, with the stream cut here.
    #[must_use]
    pub fn disconnect(self) -> Self {
        self.fail(cut())
    }

    /// The same, with an error in the stream here.
    #[must_use]
    pub fn fail(self, error: ModelError) -> Self {
        self.step(Step::Fail(error))
    }

    pub(super) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// How a stream fails that is cut.
pub(super) fn cut() -> ModelError {
    ModelError::new(
        ModelErrorKind::Disconnected,
        "the stream ended without the provider's end marker",
    )
}
