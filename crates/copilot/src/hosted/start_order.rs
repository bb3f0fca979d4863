//! Order of the requests that start work and of the stops of a session.
//!
//! Requests arrive one after the other, but a command starts only after the answer to its request was begun. A stop waits for
//! the starts of all earlier requests, so its receipt lists their work.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::time::timeout;

/// Maximum wait of a stop for earlier starts. A process starts in milliseconds, and a stop must not wait for a start that
/// hangs.
const STARTS_MAX: Duration = Duration::from_secs(1);

/// A start in progress, until the value is dropped.
pub(crate) type StartInProgress = OwnedRwLockReadGuard<()>;

/// Starts in progress hold the lock for reading, and stops wait until they can write.
#[derive(Debug, Default)]
pub(crate) struct StartOrder(Arc<RwLock<()>>);

impl StartOrder {
    /// Registers a start with the call, and not when the future is polled. The future waits for the stops that wait.
    pub(crate) fn begin(&self) -> BoxFuture<'static, StartInProgress> {
        match Arc::clone(&self.0).try_read_owned() {
            Ok(start) => std::future::ready(start).boxed(),
            Err(_stop_waits) => Arc::clone(&self.0).read_owned().boxed(),
        }
    }

    /// Returns a future that waits for the starts in progress; `None` if there are none.
    pub(crate) fn in_progress(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let lock = Arc::clone(&self.0);
        let is_settled = lock.try_write().is_ok();
        (!is_settled).then_some(async move {
            let _settled_or_late = timeout(STARTS_MAX, lock.write()).await.map(drop);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stop_waits_for_earlier_starts_only() {
        let order = StartOrder::default();
        assert!(order.in_progress().is_none());
        let first = order.begin();
        let mut stop = Box::pin(order.in_progress().expect("a start"));
        assert!(stop.as_mut().now_or_never().is_none());
        let later = order.begin();
        drop(first);
        assert!(stop.as_mut().now_or_never().is_some());
        drop(stop);
        assert!(later.now_or_never().is_some());
    }
}
