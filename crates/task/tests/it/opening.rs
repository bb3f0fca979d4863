//! Managers that own their stores alone.

use std::sync::Arc;

use allstop_log::Log;
use allstop_task::{TaskManager, TaskOptions, TaskPartsFactory};

use crate::support::root;

/// Store for the tasks of a manager.
pub(crate) struct TestStore {
    log: Arc<dyn Log>,
}

impl TestStore {
    pub(crate) fn over(log: Arc<dyn Log>) -> Self {
        Self { log }
    }

    pub(crate) async fn manager(
        &self,
        parts: impl TaskPartsFactory + 'static,
        options: TaskOptions,
    ) -> TaskManager {
        let log = Arc::clone(&self.log);
        TaskManager::open(log, root(), Arc::new(parts), options)
            .await
            .expect("it opens")
    }
}
