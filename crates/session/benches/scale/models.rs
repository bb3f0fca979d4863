//! Models with negligible cost.

use std::sync::Arc;
use std::time::Duration;

use allstop_model::{FinishReason, Model, ModelError, ModelEvent, ModelRequest, ModelStream};
use futures::future::BoxFuture;
use futures::stream;

/// Delay of the model in measurements that include a delay.
pub(crate) const THINKS: Duration = Duration::from_millis(20);

/// Returns a short answer to each message.
#[derive(Debug)]
pub(crate) struct Short;

impl Model for Short {
    fn name(&self) -> &'static str {
        "short"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        request.probe.no_connection();
        let number = request.messages.len();
        let answer: Arc<str> = format!("This is a short answer of number {number}.").into();
        let events = [
            ModelEvent::Text(answer),
            ModelEvent::End(FinishReason::Done),
        ];
        Box::pin(async move { Ok(ModelStream::new(stream::iter(events.map(Ok)))) })
    }
}

/// Sends a word every 20 ms, forever.
#[derive(Debug)]
pub(crate) struct Endless;

impl Model for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        request.probe.no_connection();
        let word: Arc<str> = "word ".into();
        let words = stream::unfold(word, |word| async {
            tokio::time::sleep(THINKS).await;
            Some((Ok(ModelEvent::Text(Arc::clone(&word))), word))
        });
        Box::pin(async move { Ok(ModelStream::new(words)) })
    }
}
