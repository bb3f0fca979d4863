//! Models behind HTTP: every provider that genai knows by name, and any OpenAI-compatible server by URL.
//!
//! Invariants:
//! 1. Every call streams; a server that is told to stop by a closed connection notices only then.
//! 2. A client serves one call at a time, over HTTP/1.1: so a call's connections are known exactly, and dropping its
//!    stream closes them instead of resetting one stream of many.
//! 3. A tool call leaves here whole or not at all; arguments that are not JSON leave as they came.
//! 4. A stream that ends without the provider's end marker is an error.
//! 5. No key is ever part of a message.

mod address;
mod client;
mod convert;
mod events;
mod failure;
#[cfg(test)]
mod other_protocols;
mod said;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;

use crate::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};
use client::{ClientPlan, ClientPool};
use events::{FrameWatch, ProviderEvents};
use failure::FailureCx;
use target::Target;

/// How long making a connection (name, TCP, TLS) may take where the caller says nothing: servers that are there answer
/// within one second, and a second try of a lost first packet is within three.
pub const CONNECT_LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// Finds a key by the name of the environment variable in which people keep it (`OPENAI_API_KEY`). Asked at each call.
pub type KeyLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where a model is and how to get in.
#[derive(Clone)]
pub struct ProviderOptions {
    /// The URL of an OpenAI-compatible server. With it the model's name is the server's own, taken literally.
    pub base_url: Option<String>,
    /// The key to send. The only one that is ever sent to `base_url`.
    pub key: Option<String>,
    /// Where to look for the key of a provider that is known by name.
    pub key_lookup: KeyLookup,
    /// How long making a connection may take; `None`: for ever.
    pub connect_limit: Option<Duration>,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            base_url: None,
            key: None,
            key_lookup: Arc::new(|_| None),
            connect_limit: Some(CONNECT_LIMIT_DEFAULT),
        }
    }
}

impl fmt::Debug for ProviderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderOptions")
            .field(
                "base_url",
                &self.base_url.as_deref().map(address::without_secrets),
            )
            .field("connect_limit", &self.connect_limit)
            .finish_non_exhaustive()
    }
}

/// A model of a provider.
///
/// ```
/// use allstop_model::{ProviderModel, ProviderOptions};
///
/// let options = ProviderOptions {
///     base_url: Some("http://127.0.0.1:8080".into()),
///     ..ProviderOptions::default()
/// };
/// let model = ProviderModel::new("smollm2", options)?;
/// # let _ = model;
/// # Ok::<(), allstop_model::ModelError>(())
/// ```
pub struct ProviderModel {
    target: Target,
    clients: Arc<ClientPool>,
}

impl ProviderModel {
    /// The model of this name: `gpt-5-mini`, `claude-…`, `groq::…`, or with a base URL the server's own name for it.
    ///
    /// # Errors
    /// `NotFound` for a provider that nobody knows, `Unauthorized` where its key is missing, `Invalid` for a URL that
    /// is none. Nothing is sent.
    pub fn new(model: &str, options: ProviderOptions) -> Result<Self, ModelError> {
        let connect_limit = options.connect_limit;
        let target = Target::new(model, options)?;
        let clients = Arc::new(ClientPool::new(ClientPlan {
            connect_limit,
            is_loopback: target.is_loopback(),
            is_https: target.is_https(),
        }));
        Ok(Self { target, clients })
    }
}

impl Model for ProviderModel {
    fn name(&self) -> &str {
        self.target.name()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let access = self.target.access()?;
            let failures = FailureCx::new(&self.target, &access);
            let frames = Arc::new(FrameWatch::default());
            let options = self.target.chat_options(&request, Arc::clone(&frames));
            let ids = events::CallIds::avoiding(&request.messages);
            let lease = ClientPool::lease(&self.clients, &request.probe)?;
            let chat = convert::chat_request(&request);
            drop(request);
            let response = lease
                .client()
                .exec_chat_stream(access.into_target(), chat, Some(&options))
                .await
                .map_err(|error| failures.of(error))?;
            let mut events = ProviderEvents::new(response.stream, lease, failures, frames, ids);
            // The request is sent at the first poll, so the provider has accepted it when the first event is there.
            match events.next().await {
                Some(Ok(first)) => {
                    events.put_back(first);
                    Ok(ModelStream {
                        events: Box::pin(events),
                    })
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

impl fmt::Debug for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderModel")
            .field("name", &self.target.name())
            .finish_non_exhaustive()
    }
}
