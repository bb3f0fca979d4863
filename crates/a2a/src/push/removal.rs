//! Removal of tasks: the configurations of a task are deleted together with the task.

use allstop_core::TaskId;
use allstop_log::{StreamName, Version};
use allstop_task::TaskAttachment;

use super::notifications::PushNotifications;

/// A task stays while events of it still have to be delivered to a webhook.
impl TaskAttachment for PushNotifications {
    fn streams(&self, task: &TaskId) -> Option<Vec<(StreamName, Version)>> {
        self.shared.store.streams_to_delete(task)
    }

    fn deleted(&self, task: &TaskId) {
        self.shared.store.forget(task);
    }
}
