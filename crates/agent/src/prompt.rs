//! What one turn is asked.

use std::sync::Arc;

use allstop_core::MessageId;
use allstop_core::record::TurnOrigin;

/// What one turn is asked: the user's words, and where they came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The user's words; empty where background work caused the turn.
    pub text: Arc<str>,
    /// The message that they came in.
    pub message: Option<MessageId>,
    /// Who caused the turn.
    pub origin: TurnOrigin,
    /// The W3C trace context of the message (`traceparent`). Tools get it as it is; a stop never cancels it.
    pub trace: Option<Arc<str>>,
}

impl<T: Into<Arc<str>>> From<T> for Prompt {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}
