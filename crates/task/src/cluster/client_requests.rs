//! Requests of clients. Each request continues until it is complete, even if its client no longer waits for the answer.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::error::ExecuteError;

/// Maximum number of messages that are stored at the same time. If the store does not answer, each message occupies
/// memory until its timeout.
const MESSAGES_MAX: usize = 1_024;

/// Client requests in progress on a node.
///
/// Stops need no permit and have no limit. A stop is small and has a timeout, and must not wait until messages are
/// stored.
#[derive(Debug)]
pub(crate) struct ClientRequests {
    scope: Scope,
    permits: Arc<Semaphore>,
    under_way: TaskTracker,
}

impl ClientRequests {
    /// Creates a set of requests that run in this scope.
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            permits: Arc::new(Semaphore::new(MESSAGES_MAX)),
            under_way: TaskTracker::new(),
        }
    }

    /// Acquires a permit for one message. The caller holds the permit while it stores the message.
    pub(crate) fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_full| ExecuteError::Full("too many messages are being stored"))
    }

    /// Runs a request as work of the node. `None` if the node ends before the request is complete; the request may then
    /// have taken effect.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the request.
    pub(crate) async fn run_detached<T: Send + 'static>(
        &self,
        name: &'static str,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let under_way = self.under_way.token();
        let spec = WorkSpec::new(ItemKind::Future, name);
        let running = self.scope.spawn(spec, |cx| async move {
            let _under_way = under_way;
            tokio::select! {
                _stopped = cx.stopped_at(name) => None,
                answer = request => Some(answer),
            }
        });
        running.ok()?.await.ok().flatten()
    }

    /// Waits for the requests in progress. The manager must accept no more requests before this call.
    pub(crate) async fn done(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }
}
