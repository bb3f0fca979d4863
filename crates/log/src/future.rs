//! The future of a log's answer.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;

/// A log's answer. A store in memory returns the answer immediately, without an allocation. Other stores answer later.
#[must_use = "a future does nothing unless it is polled"]
pub enum LogFuture<T> {
    /// The answer is available.
    Ready(Ready<T>),
    /// The answer comes later.
    Waiting(BoxFuture<'static, T>),
}

impl<T> LogFuture<T> {
    /// A future whose answer is available.
    pub fn ready(answer: T) -> Self {
        Self::Ready(ready(answer))
    }

    /// A future whose answer comes later.
    pub fn waiting(answer: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(answer))
    }
}

impl<T> Future for LogFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Ready(answer) => Pin::new(answer).poll(cx),
            Self::Waiting(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for LogFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "LogFuture::Ready",
            Self::Waiting(_) => "LogFuture::Waiting",
        })
    }
}
