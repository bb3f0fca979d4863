//! Requests of clients: each is done to its end, whether its client waits for the answer or not.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::error::ExecuteError;

/// Messages that are stored at the same time. Without a store each of them waits for its time to pass, and holds what its
/// client has sent.
const MESSAGES_MAX: usize = 1_024;

/// Requests that are under way at a node.
///
/// Stops have no limit: they are small, their number ends with their time, and none may wait for a place.
#[derive(Debug)]
pub(crate) struct ClientRequests {
    scope: Scope,
    places: Arc<Semaphore>,
    under_way: TaskTracker,
}

impl ClientRequests {
    /// Requests that run in this scope.
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            places: Arc::new(Semaphore::new(MESSAGES_MAX)),
            under_way: TaskTracker::new(),
        }
    }

    /// Place of a message, for as long as it is being stored.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_full| ExecuteError::Full("too many messages are being stored"))
    }

    /// Does a request as work of the node. `None`: the node ends first, and the request may have had its effect.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the request.
    pub(crate) async fn to_its_end<T: Send + 'static>(
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

    /// Waits for the requests that are under way. The manager takes no more before.
    pub(crate) async fn done(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }
}
