//! Input of one turn.

use std::sync::Arc;

use allstop_core::MessageId;
use allstop_core::record::TurnOrigin;

/// Input of one turn: text of the user, and its origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Text of the user; empty if background work caused the turn.
    pub text: Arc<str>,
    /// Message that contains the text.
    pub message: Option<MessageId>,
    /// Origin of the turn.
    pub origin: TurnOrigin,
    /// W3C trace context of the message (`traceparent`). Tools receive it unchanged; a stop does not cancel it.
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
