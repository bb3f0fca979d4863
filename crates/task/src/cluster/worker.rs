//! The loops of a node, a process of the cluster.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{NotStarted, WorkSpec};

use super::node::ClusterNode;
use crate::execution::ExecutionHost as _;
use crate::manager::ManagerInner;

impl ClusterNode {
    /// Runs a loop as work of the node.
    fn run(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), NotStarted> {
        let spec = WorkSpec::new(ItemKind::Future, name);
        // The loop is work of the scope, and no caller waits for its value.
        drop(self.scope.spawn(spec, |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at(name) => {}
                () = work => {}
            }
        })?);
        Ok(())
    }
}

impl ManagerInner {
    /// Starts the loops of this node in its scope.
    pub(crate) fn start_node(self: &Arc<Self>, node: &Arc<ClusterNode>) -> Result<(), NotStarted> {
        let own = Arc::clone(node);
        node.run("index of tasks", async move { own.write_index().await })?;
        if let Some(observer) = self.options.observer.clone() {
            let (log, own) = (Arc::clone(&self.log), Arc::clone(node));
            node.run("ends of accepted messages", async move {
                own.accepted.follow(&log, &*observer).await;
            })?;
        }
        if !node.runs_executions() {
            node.is_closed.send_replace(true);
            if node.options.settles_lost_tasks {
                self.start_settling(node)?;
            }
            return Ok(());
        }
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        let lease = WorkSpec::new(ItemKind::Future, "lease");
        // This loop runs on a separate thread, because code of the executors may block the threads of the runtime.
        drop(node.scope.spawn_control(lease, |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("lease") => {}
                () = manager.keep_lease(&own) => {}
            }
            own.is_closed.send_replace(true);
        })?);
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        node.run("late receipts", async move {
            let written = own
                .late_receipts
                .write(&manager.log, |stream| manager.note(stream));
            tokio::select! {
                _never = written => {}
                () = manager.shut_down() => {}
            }
        })?;
        self.start_settling(node)
    }

    /// Starts the loops that end expired leases and attend to tasks. A node without a permit for an execution only ends
    /// tasks, and only takes wake-ups that no worker waits for.
    fn start_settling(self: &Arc<Self>, node: &Arc<ClusterNode>) -> Result<(), NotStarted> {
        let own = Arc::clone(node);
        node.run("leases of others", async move { own.keep_watching().await })?;
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        node.run("wake-ups", async move { manager.take_wake_ups(&own).await })
    }
}
