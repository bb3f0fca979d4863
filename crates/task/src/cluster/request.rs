//! Requests of clients: each is done to its end, whether its client waits for the answer or not.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::node::ClusterNode;
use crate::error::ExecuteError;
use crate::manager::TaskManager;

/// Messages that are stored at the same time. Without a store each of them waits for its time to pass, and holds what its
/// client has sent.
const MESSAGES_MAX: usize = 1_024;

/// Requests that are under way at a node.
///
/// Stops have no limit: they are small, their number ends with their time, and none may wait for a place.
#[derive(Debug)]
pub(crate) struct ClientRequests {
    places: Arc<Semaphore>,
    under_way: TaskTracker,
}

impl Default for ClientRequests {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MESSAGES_MAX)),
            under_way: TaskTracker::new(),
        }
    }
}

impl ClientRequests {
    /// Place of a message, for as long as it is being stored.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_full| ExecuteError::Full("too many messages are being stored"))
    }

    /// Waits for the requests that are under way. The manager takes no more before.
    pub(crate) async fn done(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }
}

impl TaskManager {
    /// Does a request as work of the node. `None`: the node ends first, and the request may have had its effect.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the request.
    pub(crate) async fn to_its_end<T, F>(
        &self,
        node: &Arc<ClusterNode>,
        name: &'static str,
        request: impl FnOnce(Self, Arc<ClusterNode>) -> F,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let done = request(self.clone(), Arc::clone(node));
        let under_way = node.requests.under_way.token();
        let spec = WorkSpec::new(ItemKind::Future, name);
        let running = node.scope.spawn(spec, |cx| async move {
            let _under_way = under_way;
            tokio::select! {
                _stopped = cx.stopped_at(name) => None,
                answer = done => Some(answer),
            }
        });
        running.ok()?.await.ok().flatten()
    }
}
