//! Time limits of a provider: the time until the first token, and the time between tokens. A call that exceeds a limit
//! fails with [`ModelErrorKind::ProviderTimeout`]. The deadlines of turns and runs are separate: the scopes in which
//! turns and runs work enforce them, not this module.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tokio::time::{Instant, timeout_at};

use crate::{Model, ModelError, ModelErrorKind, ModelEvents, ModelRequest, ModelStream};

/// Maximum time in which a provider sends nothing. `None` means no limit, so that only a deadline of the turn or of the
/// run ends the wait.
///
/// Every [`crate::ModelEvent`] counts as a token: text, reasoning, and the progress of a tool call. Keep-alive messages
/// of a provider do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenLimits {
    /// Maximum time from the start of the call to the first event.
    pub first_token: Option<Duration>,
    /// Maximum time from each event to the next event.
    pub between_tokens: Option<Duration>,
}

impl TokenLimits {
    /// Sets the maximum time from the start of the call to the first event.
    #[must_use]
    pub fn first_token(mut self, first_token: impl Into<Option<Duration>>) -> Self {
        self.first_token = first_token.into();
        self
    }

    /// Sets the maximum time from each event to the next event.
    #[must_use]
    pub fn between_tokens(mut self, between_tokens: impl Into<Option<Duration>>) -> Self {
        self.between_tokens = between_tokens.into();
        self
    }

    fn is_none(self) -> bool {
        self.first_token.is_none() && self.between_tokens.is_none()
    }
}

/// Starts a call with these limits. If there are no limits, this function adds no cost.
///
/// # Errors
/// Returns the model's errors, and [`ModelErrorKind::ProviderTimeout`].
///
/// # Cancel safety
/// The same rule as for [`Model::stream`]: if the future or the stream is dropped, the call ends.
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
    enum AwaitedToken {
        First(Option<Instant>),
        Later,
    }
    stream::unfold(
        Some((events, AwaitedToken::First(first))),
        move |state| async move {
            let (mut events, next) = state?;
            let (at, what, limit) = match next {
                AwaitedToken::First(at) => (at, "no token", limits.first_token),
                AwaitedToken::Later => (
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
                    // Returning no state drops the provider's stream, and this closes the connection.
                    Err(_) => return Some((Err(silent(what, limit)), None)),
                },
            };
            let state = item.is_ok().then_some((events, AwaitedToken::Later));
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
