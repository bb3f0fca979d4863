//! Models over HTTP: known providers by name, and any OpenAI-compatible server by URL.
//!
//! Invariants:
//! 1. Every call streams. Without a stream, a server does not notice a closed connection until its answer is complete.
//! 2. A client serves one call at a time, over HTTP/1.1. So the connections of a call are known, and a dropped stream
//!    closes its connection. With HTTP/2, the drop would only reset one of many streams.
//! 3. A tool call is returned completely or not at all. Arguments that are not JSON are returned as text.
//! 4. A stream that ends without the provider's end marker is an error.
//! 5. No error message contains an API key.
//! 6. For every response of a provider, a call holds at most one event, one answer and one body of an error response.
//!    Each of the three has a limited length. The call yields to the runtime between chunks.

mod address;
mod answer;
mod body;
mod bounded_json;
mod call_ids;
mod carrier;
mod client;
mod error_context;
mod event_reader;
mod events;

mod known;
mod model_list;
mod options;
mod protocol;
#[cfg(test)]
mod protocol_tests;
mod provider_error;
mod target;
mod transcript;

use std::fmt;
use std::sync::Arc;

use allstop_core::Message;
use futures::StreamExt;
use futures::future::BoxFuture;

use crate::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream, known_model};
use client::{ClientPlan, ClientPool};
use events::ProviderCall;
use target::ModelTarget;

pub use address::without_secrets;
pub use carrier::{CarriedRequest, CarriedResponse, CarrierError, RequestCarrier, WireProtocol};
pub(crate) use known::provider_of;
pub use options::{AnswerLimits, CONNECT_LIMIT_DEFAULT, KeyLookup, ProviderOptions, TokenFetch};

/// A model of a provider.
///
/// ```
/// use allstop_model::{ProviderModel, ProviderOptions};
///
/// let options = ProviderOptions::default().base_url("http://127.0.0.1:8080".to_owned());
/// let model = ProviderModel::new("smollm2", options)?;
/// # let _ = model;
/// # Ok::<(), allstop_model::ModelError>(())
/// ```
pub struct ProviderModel {
    target: ModelTarget,
    /// True if the model certainly accepts no images.
    is_text_only: bool,
    clients: Arc<ClientPool>,
}

impl ProviderModel {
    /// Creates a model from its name. Examples of names are `gpt-5-mini`, `claude-…` and `groq::…`. With a base URL,
    /// the name is the server's own name for the model.
    ///
    /// This function sends nothing. It returns `NotFound` for an unknown provider, `Unauthorized` for a missing key,
    /// and `Invalid` for an invalid URL.
    pub fn new(model: &str, options: ProviderOptions) -> Result<Self, ModelError> {
        let connect_limit = options.connect_limit;
        let known = known_model(model, options.base_url.as_deref());
        let is_text_only = known.is_some_and(|known| known.is_text_only);
        let target = ModelTarget::new(model, options)?;
        let clients = Arc::new(ClientPool::new(ClientPlan {
            connect_limit,
            is_loopback: target.is_loopback(),
            is_https: target.is_https(),
        }));
        Ok(Self {
            target,
            is_text_only,
            clients,
        })
    }
}

impl Model for ProviderModel {
    fn name(&self) -> &str {
        self.target.name()
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        self.target.body(request).map(drop)
    }

    fn stream(&self, mut request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            if self.is_text_only {
                leave_out_images(self.target.model(), &mut request.messages)?;
            }
            let lease = ClientPool::lease(&self.clients, &request.probe)?;
            let call = ProviderCall::begin(&self.target, lease, request).await?;
            let mut events = Box::pin(call.into_events());
            // This method returns the stream only after the first event, with which the provider begins its answer. A
            // call that fails before that event returns the error here, so that the caller may retry the call.
            match events.next().await {
                Some(Ok(first)) => {
                    let first = futures::stream::once(std::future::ready(Ok(first)));
                    Ok(ModelStream::new(first.chain(events)))
                }
                Some(Err(error)) => Err(error),
                None => Err(ModelError::new(
                    ModelErrorKind::Protocol,
                    "the provider sent nothing",
                )),
            }
        })
    }
}

/// Removes the images from a request to a model that accepts none: images of earlier messages, and images that tools
/// have returned. An image of the newest user message is an error, because the user has just sent it.
fn leave_out_images(model: &str, messages: &mut [Arc<Message>]) -> Result<(), ModelError> {
    let is_user = |message: &Arc<Message>| matches!(**message, Message::User { .. });
    let newest = messages.iter().rposition(is_user);
    let has_images = |at: usize| {
        messages
            .get(at)
            .is_some_and(|message| !message.images().is_empty())
    };
    if newest.is_some_and(has_images) {
        return Err(ModelError::new(
            ModelErrorKind::Invalid,
            format!("model `{model}` takes no images"),
        )
        .with_hint("send the message without images, or use another model"));
    }
    for message in messages {
        if !message.images().is_empty() {
            *message = Arc::new(message.without_images());
        }
    }
    Ok(())
}

impl fmt::Debug for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderModel")
            .field("name", &self.target.name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::Image;

    use super::*;

    #[test]
    fn only_an_image_of_the_newest_message_is_an_error() {
        let image = Message::User {
            text: "look".into(),
            images: Image::new(*b"\x89PNG\r\n\x1a\n").unwrap().into(),
        };
        let mut messages = vec![Arc::new(image)];
        let error = leave_out_images("o3-mini", &mut messages).unwrap_err();
        assert_eq!(error.message, "model `o3-mini` takes no images");
        messages.push(Arc::new(Message::user("and now?")));
        leave_out_images("o3-mini", &mut messages).unwrap();
        assert_eq!(*messages[0], Message::user("look\n[image left out]"));
    }
}
