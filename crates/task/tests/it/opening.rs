//! Managers that have their store for themselves.

use std::sync::Arc;

use allstop_log::Log;
use allstop_task::{TaskManager, TaskOptions, TaskPartsFactory};

use crate::support::root;

pub(crate) async fn manager_over(
    log: Arc<dyn Log>,
    parts: impl TaskPartsFactory + 'static,
    options: TaskOptions,
) -> TaskManager {
    TaskManager::open(log, root(), Arc::new(parts), options)
        .await
        .expect("it opens")
}
