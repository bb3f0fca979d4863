//! Managers, each of which is the only node of a cluster.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use allstop_log::Log;
use allstop_task::{
    ClusterLink, ClusterOptions, MemoryLink, TaskManager, TaskOptions, TaskPartsFactory,
};

use crate::support::root;

/// Number of permits for executions. No test needs more permits.
const CONCURRENCY: usize = 1_000;

/// The lease is short, because some tests wait until the lease of a lost node expires.
const LEASE: Duration = Duration::from_secs(5);

/// Store for the tasks of a manager.
pub(crate) struct TestStore {
    log: Arc<dyn Log>,
    link: Arc<MemoryLink>,
}

impl TestStore {
    pub(crate) fn over(log: Arc<dyn Log>) -> Self {
        let link = Arc::new(MemoryLink::new());
        Self { log, link }
    }

    pub(crate) fn manager(
        &self,
        parts: impl TaskPartsFactory + 'static,
        options: TaskOptions,
    ) -> Ready<TaskManager> {
        let cluster = ClusterOptions::new(Arc::clone(&self.link) as Arc<dyn ClusterLink>)
            .concurrency(CONCURRENCY)
            .lease(LEASE);
        let log = Arc::clone(&self.log);
        let manager = TaskManager::join(log, cluster, root(), Arc::new(parts), options);
        ready(manager.expect("its scope is open"))
    }
}
