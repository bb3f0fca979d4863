//! A model that is a function of the program.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use allstop_core::Message;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::scripted::{Reply, play_reply};
use crate::{Model, ModelError, ModelRequest, ModelStream};

type Answer = BoxFuture<'static, Result<Reply, ModelError>>;

/// A model that is a function of the program; see [`from_fn`].
pub struct FnModel {
    name: Arc<str>,
    answer: Box<dyn Fn(ModelRequest) -> Answer + Send + Sync>,
}

/// Creates a model from a function that returns the answer to a request: a text, or a [`Reply`] with tool calls. `name`
/// appears in receipts of stops.
///
/// ```
/// use allstop_model::{ModelRequest, Reply, from_fn};
/// use serde_json::json;
///
/// let model = from_fn("echo", async |request: ModelRequest| match request.messages.len() {
///     1 => Ok(Reply::text("Let me look.").call("weather", json!({"city": "Lima"}))),
///     _ => Ok(Reply::text("It is sunny.")),
/// });
/// # let _ = model;
/// let hello = from_fn("hello", async |_request| Ok("hi"));
/// # let _ = hello;
/// ```
///
/// # Cancel safety
/// A stop of the call drops the future of the function.
pub fn from_fn<F, A, R>(name: impl Into<Arc<str>>, answer: F) -> FnModel
where
    F: Fn(ModelRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<R, ModelError>> + Send + 'static,
    R: Into<Reply>,
{
    FnModel {
        name: name.into(),
        answer: Box::new(move |request| answer(request).map(|reply| reply.map(Into::into)).boxed()),
    }
}

impl Model for FnModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        request.probe.no_connection();
        let is_assistant =
            |message: &&Arc<Message>| matches!(***message, Message::Assistant { .. });
        let assistants = request.messages.iter().filter(is_assistant).count();
        let answer = (self.answer)(request);
        Box::pin(async move { play_reply(answer.await?, assistants).await })
    }
}

impl fmt::Debug for FnModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnModel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
