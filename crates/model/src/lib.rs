//! Language models: the trait, providers over HTTP, and a scripted one.
//!
//! A [`Model`] streams, always. Stopping a call is dropping its future or its stream: that closes the connection, and
//! the [`ConnectionProbe`] that travelled with the request says whether the kernel agrees.
//!
//! - [`ProviderModel`] talks to providers that are known by name, and to any OpenAI-compatible server by URL.
//! - [`ScriptedModel`] plays a script: for tests of agents, without a key and without a network.
//! - [`RecordingModel`] wraps a model and writes a script of what it said.
//! - [`stream_within`] puts the limits on a call that are the provider's own time; [`RetryPolicy`] says when to try
//!   again. Both wait nowhere but in the caller's scope.
//!
//! Nothing here reads the environment: keys come from a function that the caller passes in.

pub mod error;
pub mod event;
mod kernel;
pub mod limits;
pub mod probe;
pub mod provider;
pub mod record;
pub mod redact;
pub mod request;
pub mod retry;
pub mod scripted;

pub use allstop_core::FinishReason;
pub use error::{ModelError, ModelErrorKind};
pub use event::{CALLS_MAX, ModelEvent};
pub use limits::{TokenLimits, stream_within};
pub use probe::{ConnectionProbe, ConnectionState};
pub use provider::{ProviderModel, ProviderOptions};
pub use record::RecordingModel;
pub use redact::SecretRedactor;
pub use request::{ModelRequest, ToolDeclaration};
pub use retry::RetryPolicy;
pub use scripted::{Pause, Reply, ScriptedModel};

use std::fmt;
use std::pin::Pin;

use futures::Stream;
use futures::future::BoxFuture;

/// A language model behind a name.
pub trait Model: Send + Sync + fmt::Debug {
    /// The name for receipts and records: `openai::gpt-x`, `script::demo.yaml`.
    fn name(&self) -> &str;

    /// Starts one call. The answer is its stream as soon as the provider has accepted the request.
    ///
    /// Every connection of the call is registered with `request.probe` before it is made, so that a stop during
    /// connecting can be verified too.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the call and closes its connection.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;
}

/// What arrives in one call, in order. After an error or [`ModelEvent::End`] nothing follows.
pub type ModelEvents = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// The stream of one call.
#[must_use = "dropping the stream ends the call"]
pub struct ModelStream {
    /// What arrives.
    pub events: ModelEvents,
}

impl ModelStream {
    /// A stream of these events.
    pub fn new(
        events: impl Stream<Item = Result<ModelEvent, ModelError>> + Send + 'static,
    ) -> Self {
        Self {
            events: Box::pin(events),
        }
    }
}

impl fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStream").finish_non_exhaustive()
    }
}
