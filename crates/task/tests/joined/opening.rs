//! Managers that are the only node of a cluster.

use std::sync::Arc;

use allstop_log::Log;
use allstop_task::{ClusterOptions, MemoryLink, TaskManager, TaskOptions, TaskPartsFactory};

use crate::support::root;

/// More than any of the tests runs.
const CONCURRENCY: usize = 1_000;

pub(crate) async fn manager_over(
    log: Arc<dyn Log>,
    parts: impl TaskPartsFactory + 'static,
    options: TaskOptions,
) -> TaskManager {
    let cluster = ClusterOptions {
        concurrency: CONCURRENCY,
        ..ClusterOptions::new(Arc::new(MemoryLink::new()))
    };
    TaskManager::join(log, cluster, root(), Arc::new(parts), options).expect("its scope is open")
}
