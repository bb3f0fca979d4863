//! Requests of clients: each is done to its end, whether its client waits for the answer or not.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;

use super::node::ClusterNode;
use crate::manager::TaskManager;

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
        let spec = WorkSpec::new(ItemKind::Future, name);
        let running = node.scope.spawn(spec, |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at(name) => None,
                answer = done => Some(answer),
            }
        });
        running.ok()?.await.ok().flatten()
    }
}
