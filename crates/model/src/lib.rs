//! Language models: the trait, providers over HTTP, and a scripted model.
//!
//! Every [`Model`] streams its answers. To stop a call, drop its future or its stream. The drop closes the connection.
//! The [`ConnectionProbe`] in the request then asks the kernel whether the connection is closed.
//!
//! - `ProviderModel` calls providers by name, and any OpenAI-compatible server by URL; `from_env` creates one.
//! - [`from_fn`] turns a function into a model.
//! - [`ScriptedModel`] plays a script: for tests of agents, without a key and without a network.
//! - `RecordingModel` wraps a model and writes a script of its answers.
//! - [`stream_within`] applies the provider's time limits to a call; [`RetryPolicy`] decides about retries. All waits
//!   are part of the caller's future, so a stop of the caller also ends the waits.
//!
//! Only `ProviderOptions::from_env` reads environment variables. Other options contain a function that returns the API
//! keys.
//!
//! A model for a test, and a call that is dropped while the model answers:
//!
//! ```
//! use allstop_model::{Model, ModelRequest, Pause, Reply, ScriptedModel};
//! use futures::{FutureExt as _, StreamExt as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::in_order_of_calls(vec![Reply::text("Once upon").pause(Pause::Forever)]);
//! let mut call = model.stream(ModelRequest::new(Vec::new())).await?;
//! let first = call.events.next().await.expect("a text")?;
//! println!("{first:?}");
//! assert!(call.events.next().now_or_never().is_none(), "the model pauses");
//! drop(call); // The call ends here.
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(all(feature = "providers", feature = "script-files")),
    expect(
        dead_code,
        reason = "connections and replies that only these features create"
    )
)]

pub mod error;
pub mod event;
mod function;
mod kernel;
#[cfg(feature = "providers")]
mod known_models;
pub mod limits;
mod price;
pub mod probe;
#[cfg(feature = "providers")]
pub mod provider;
#[cfg(feature = "script-files")]
pub mod record;
pub mod redact;
pub mod request;
mod request_headers;
pub mod request_settings;
pub mod retry;
pub mod scripted;

pub use allstop_core::FinishReason;
pub use error::{ModelError, ModelErrorKind};
pub use event::{CALLS_MAX, ModelEvent};
pub use function::{FnModel, from_fn};
#[cfg(feature = "providers")]
pub use known_models::{FIGURES_DATE, KnownModel, known_model};
pub use limits::{TokenLimits, stream_within};
pub use price::TokenPrice;
pub use probe::{ConnectionProbe, ConnectionState, OutsideWork};
#[cfg(feature = "providers")]
pub use provider::{
    AnswerLimits, CarriedRequest, CarriedResponse, CarrierError, ProviderModel, ProviderOptions,
    RequestCarrier, WireProtocol,
};
#[cfg(feature = "script-files")]
pub use record::{RECORDING_BEGINNING, RecordingModel};
pub use redact::SecretRedactor;
pub use request::{ModelRequest, OutputSchema, ToolDeclaration};
pub use request_headers::RequestHeaders;
pub use request_settings::{ReasoningEffort, RequestSettings, ToolChoice};
pub use retry::RetryPolicy;
pub use scripted::{Pause, Reply, ScriptedModel};

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use futures::future::BoxFuture;

/// Creates the model of a provider from its name, with the key in the usual environment variable: `gpt-5-mini` with
/// `OPENAI_API_KEY`. [`ProviderOptions`] has a base URL and other sources of the key.
///
/// # Errors
/// If the provider is unknown, or its variable is not set.
#[cfg(feature = "providers")]
pub fn from_env(model: &str) -> Result<ProviderModel, ModelError> {
    ProviderModel::new(model, ProviderOptions::from_env())
}

/// A language model.
pub trait Model: Send + Sync + fmt::Debug {
    /// Name of the model in receipts of stops and in log records: `openai::gpt-x`, `script::demo.yaml`. A model that stands
    /// for several models may change its name between two calls.
    fn name(&self) -> &str;

    /// Checks a request, and sends nothing. A call makes this check itself. By default, each request is valid.
    ///
    /// # Errors
    /// If the model would refuse the request before it sends anything, for example because of a setting that its
    /// provider lacks.
    fn check(&self, _request: &ModelRequest) -> Result<(), ModelError> {
        Ok(())
    }

    /// Starts a call. Returns the stream of the call as soon as the provider has accepted the request.
    ///
    /// The model registers every connection of the call with `request.probe` before it opens the connection. So the
    /// close can be verified even if a stop comes while the model is connecting.
    ///
    /// # Cancel safety
    /// If the future or the stream is dropped, the call ends and its connection is closed.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        (**self).check(request)
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        (**self).stream(request)
    }
}

/// Events of one call, in order. No event follows an error or [`ModelEvent::End`].
pub type ModelEvents = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// The stream of one call.
#[must_use = "dropping the stream ends the call"]
pub struct ModelStream {
    /// The events.
    pub events: ModelEvents,
}

impl ModelStream {
    /// Creates a stream of these events.
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
