//! Input of one turn.

use std::sync::Arc;

use allstop_core::image::IMAGE_TOKENS_ESTIMATED;
use allstop_core::record::TurnOrigin;
use allstop_core::{Images, MessageId, TraceContext, Usage};
use allstop_model::RequestHeaders;

/// Input of one turn: text and images of the user, and their origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Text of the user; empty if background work caused the turn.
    pub text: Arc<str>,
    /// Images of the user.
    pub images: Images,
    /// Message that contains the text.
    pub message: Option<MessageId>,
    /// Origin of the turn.
    pub origin: TurnOrigin,
    /// W3C trace context of the message: the parent of the turn's span. A stop does not change it.
    pub trace: Option<TraceContext>,
    /// Further headers of the turn's requests to the model. Sub-agents do not inherit them.
    pub headers: RequestHeaders,
}

impl Prompt {
    /// Estimated tokens of the text and the images.
    pub fn tokens_estimated(&self) -> u64 {
        let images = self.images.len() as u64 * IMAGE_TOKENS_ESTIMATED;
        Usage::estimate_tokens(self.text.len()) + images
    }
}

impl<T: Into<Arc<str>>> From<T> for Prompt {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}
