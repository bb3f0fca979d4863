//! Language models: the trait, every provider that genai knows, and a scripted one.
//!
//! A [`Model`] streams. Stopping a call is dropping its stream: that closes the connection, and
//! [`ModelStream::closing`] lets the caller verify on the socket that it did.

pub mod request;
pub mod event;
pub mod error;

pub use error::{ModelError, ModelErrorKind};
pub use event::{FinishReason, ModelEvent};
pub use request::{ModelRequest, ToolDeclaration};

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use futures::future::BoxFuture;

/// A language model behind a name.
pub trait Model: Send + Sync + fmt::Debug {
    /// The name for receipts and records: `openai::gpt-x`, `script::demo.yaml`.
    fn name(&self) -> &str;

    /// Starts one call. The answer is its stream as soon as the provider has accepted the request.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the call and closes its connection.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;

    /// A model that keeps connections of its own hands out a probe before the call starts, so that a stop during
    /// connecting can be verified too. `None`: the call holds no connection.
    fn probe(&self) -> Option<Arc<dyn ConnectionProbe>> {
        None
    }
}

/// The stream of one call.
pub struct ModelStream {
    /// What arrives.
    pub events: Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>,
}

impl fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStream").finish_non_exhaustive()
    }
}

/// Sees the connections of one call from outside.
pub trait ConnectionProbe: Send + Sync + fmt::Debug {
    /// Resolves when the kernel shows no established connection of the call any more.
    fn closed(&self) -> BoxFuture<'static, ()>;
}
