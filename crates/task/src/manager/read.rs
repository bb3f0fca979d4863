//! Reads one task, lists of tasks, and events of a task.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::Version;

use super::list::{ListFilter, TaskPage, TaskPosition};
use super::{ManagerInner, TaskManager};
use crate::error::{ReadTaskError, TaskStoreError};
use crate::feed::TaskFeed;
use crate::model::Task;
use crate::subscription::TaskSubscription;
use crate::task_stream::{current_task, read_task};

/// Number of tasks that a list scans while it holds the lock of the table. Such a scan takes a tenth of a millisecond,
/// and new messages wait during this time.
pub(super) const SCAN_LEN_MAX: usize = 512;

impl TaskManager {
    /// The task with this id. A task whose executor answered with a message counts as not found.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self, id: &TaskId) -> Result<Arc<Task>, ReadTaskError> {
        let task = self.get_with_replies(id).await?;
        if task.reply.is_some() {
            return Err(ReadTaskError::NotFound(id.clone()));
        }
        Ok(task)
    }

    /// The task with this id, including a task whose executor answered with a message.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get_with_replies(&self, id: &TaskId) -> Result<Arc<Task>, ReadTaskError> {
        let (_, _, task) = self.inner.current(id).await?;
        Ok(task)
    }

    /// Tasks that this process cannot read, with the reasons and their remedies. In a cluster, the list is empty, because
    /// no process reads all tasks.
    pub fn unreadable_tasks(&self) -> Vec<(TaskId, TaskStoreError)> {
        let table = self.inner.table.lock();
        let tasks = table.unreadable();
        tasks
            .map(|(id, error)| (id.clone(), error.clone()))
            .collect()
    }

    /// Number of a task's last event.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn last_event(&self, id: &TaskId) -> Result<Version, ReadTaskError> {
        let (_, version, _) = self.inner.current(id).await?;
        Ok(version)
    }

    /// Subscribes to the events of a task. `from` is the number of the last event that the client has. Without `from`,
    /// the subscription begins with a snapshot. The subscription ends after a record that ends an execution. If the
    /// task is at rest, the subscription waits for the next execution.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn subscribe(
        &self,
        id: &TaskId,
        from: Option<Version>,
    ) -> Result<TaskSubscription, ReadTaskError> {
        self.subscription(id, from, Task::has_ended).await
    }

    /// Like [`subscribe`](Self::subscribe), but for the current or the last execution. If the task is at rest, this
    /// subscription does not wait for the next execution.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn subscribe_to_execution(
        &self,
        id: &TaskId,
        from: Option<Version>,
    ) -> Result<TaskSubscription, ReadTaskError> {
        let is_at_rest = |task: &Task| !(task.is_executing || task.awaits_execution);
        let subscription = self.subscription(id, from, is_at_rest).await?;
        Ok(subscription.of_execution())
    }

    async fn subscription(
        &self,
        id: &TaskId,
        from: Option<Version>,
        is_over: impl Fn(&Task) -> bool,
    ) -> Result<TaskSubscription, ReadTaskError> {
        let (feed, version, task) = self.inner.current(id).await?;
        let log = Arc::clone(&self.inner.log);
        let is_over = is_over(&task);
        let remote = self.inner.coordinator.remote_live_text(&task);
        let subscription = match from {
            Some(cursor) => {
                let last = is_over.then_some(version);
                TaskSubscription::from_cursor(log, feed, cursor, last, id.clone())
            }
            None => TaskSubscription::from_snapshot(log, feed, version, task, is_over),
        };
        Ok(subscription.with_remote(remote))
    }
}

impl ManagerInner {
    /// The task as it is in the log.
    pub(crate) async fn stored(&self, id: &TaskId) -> Result<(Version, Arc<Task>), ReadTaskError> {
        let read = read_task(&*self.log, id).await?;
        read.ok_or_else(|| ReadTaskError::NotFound(id.clone()))
    }

    pub(super) async fn current_locally(
        &self,
        id: &TaskId,
    ) -> Result<(Option<Arc<TaskFeed>>, Version, Arc<Task>), ReadTaskError> {
        let not_found = || ReadTaskError::NotFound(id.clone());
        let feed = {
            let mut table = self.table.lock();
            table.check_readable(id)?;
            table.feed(id).ok_or_else(not_found)?
        };
        let current = current_task(&*self.log, id, &feed).await?;
        let (version, task) = current.ok_or_else(not_found)?;
        Ok((Some(feed), version, task))
    }

    pub(super) fn list_locally(
        &self,
        filter: &ListFilter,
        after: Option<&TaskPosition>,
        limit: usize,
    ) -> TaskPage {
        let known_total = self.table.lock().known_total(filter);
        // If the total is not known, the scan must count all tasks, so it starts at the newest task.
        let mut position = known_total.and(after.cloned());
        let (mut tasks, mut counted) = (Vec::new(), 0);
        loop {
            let table = self.table.lock();
            let mut last = None;
            for task in table.newest_first(position.as_ref()).take(SCAN_LEN_MAX) {
                last = Some(task);
                if !filter.lets_through(task) {
                    continue;
                }
                counted += 1;
                if tasks.len() <= limit && task.is_after(after) {
                    tasks.push(task.clone());
                }
            }
            let is_full = known_total.is_some() && tasks.len() > limit;
            position = last.map(|task| (task.updated_at, task.id.clone()));
            if is_full || position.is_none() {
                break;
            }
        }
        let total = known_total.unwrap_or(counted);
        TaskPage::first(tasks, limit, total)
    }
}
