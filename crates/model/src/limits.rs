//! The limits that are the provider's own time: to the first token, and between tokens. A call that exceeds one fails
//! with [`ModelErrorKind::ProviderTimeout`]; the deadlines of turn and run are the scope's, and never end up here.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tokio::time::{Instant, timeout_at};

use crate::{Model, ModelError, ModelErrorKind, ModelEvents, ModelRequest, ModelStream};

/// How long a provider may be silent. `None`: for ever, which only the deadline then ends.
///
/// What counts as a token is every [`crate::ModelEvent`]: text, reasoning, and the progress of a tool call. A
/// provider's keep-alive does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// From the start of the call to its first event.
    pub first_token: Option<Duration>,
    /// From each event to the next.
    pub between_tokens: Option<Duration>,
}

impl TokenLimits {
    fn is_none(self) -> bool {
        self.first_token.is_none() && self.between_tokens.is_none()
    }
}

/// Starts a call under these limits. Without limits it costs nothing.
///
/// # Errors
/// The model's own, and [`ModelErrorKind::ProviderTimeout`].
///
/// # Cancel safety
/// As [`Model::stream`]: dropping the future or the stream ends the call.
pub async fn stream_within(
    model: &dyn Model,
    request: ModelRequest,
    limits: TokenLimits,
) -> Result<ModelStream, ModelError> {
    if limits.is_none() {
        return model.stream(request).await;
    }
    let first = limits
        .first_token
        .and_then(|limit| Instant::now().checked_add(limit));
    let stream = match first {
        Some(at) => timeout_at(at, model.stream(request))
            .await
            .map_err(|_| silent("no token", limits.first_token))??,
        None => model.stream(request).await?,
    };
    Ok(ModelStream::new(limited(stream.events, limits, first)))
}

fn limited(
    events: ModelEvents,
    limits: TokenLimits,
    first: Option<Instant>,
) -> impl futures::Stream<Item = Result<crate::ModelEvent, ModelError>> + Send {
    enum Next {
        First(Option<Instant>),
        Later,
    }
    stream::unfold(
        Some((events, Next::First(first))),
        move |state| async move {
            let (mut events, next) = state?;
            let (at, what, limit) = match next {
                Next::First(at) => (at, "no token", limits.first_token),
                Next::Later => (
                    limits
                        .between_tokens
                        .and_then(|limit| Instant::now().checked_add(limit)),
                    "no further token",
                    limits.between_tokens,
                ),
            };
            let item = match at {
                None => events.next().await?,
                Some(at) => match timeout_at(at, events.next()).await {
                    Ok(item) => item?,
                    // The provider's stream is dropped here, which closes its connection.
                    Err(_) => return Some((Err(silent(what, limit)), None)),
                },
            };
            let state = item.is_ok().then_some((events, Next::Later));
            Some((item, state))
        },
    )
}

fn silent(what: &str, limit: Option<Duration>) -> ModelError {
    let limit = limit.unwrap_or_default();
    ModelError::new(
        ModelErrorKind::ProviderTimeout,
        format!("the provider sent {what} within {limit:?}"),
    )
    .with_hint("try again, or raise the limit for this model")
}
