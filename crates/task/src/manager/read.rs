//! Reading tasks: one, many, and their events.

use std::sync::Arc;

use allstop_core::{ContextId, TaskId, Timestamp};
use allstop_log::Version;

use super::TaskManager;
use super::table::TaskSummary;
use crate::error::ReadTaskError;
use crate::feed::TaskFeed;
use crate::model::{Task, TaskState};
use crate::subscription::TaskSubscription;
use crate::task_stream::current_task;

/// Tasks that a list looks at under the lock of the table: a tenth of a millisecond, for which messages wait.
const SCAN_LEN_MAX: usize = 512;

/// Tasks to list. Every field narrows the list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Tasks of this principal.
    pub owner: Option<Arc<str>>,
    /// Tasks of this context.
    pub context_id: Option<ContextId>,
    /// Tasks in this state.
    pub state: Option<TaskState>,
    /// Tasks that have changed after this time.
    pub updated_after: Option<Timestamp>,
}

/// Position in a list: the last task of a page.
pub type TaskPosition = (Timestamp, TaskId);

/// Page of a list, from the newest change to the oldest.
#[derive(Debug, Clone)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskSummary>,
    /// Position of the next page; `None` for the last page.
    pub next: Option<TaskPosition>,
    /// Number of tasks that the filter lets through.
    pub total: usize,
}

impl TaskManager {
    /// The task with this id. An answer without a task is not found.
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

    /// The task with this id, also if its executor answered with a message.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get_with_replies(&self, id: &TaskId) -> Result<Arc<Task>, ReadTaskError> {
        let (_, _, task) = self.current(id).await?;
        Ok(task)
    }

    async fn current(
        &self,
        id: &TaskId,
    ) -> Result<(Arc<TaskFeed>, Version, Arc<Task>), ReadTaskError> {
        let not_found = || ReadTaskError::NotFound(id.clone());
        let feed = self.inner.table.lock().feed(id).ok_or_else(not_found)?;
        let current = current_task(&*self.inner.log, id, &feed).await?;
        let (version, task) = current.ok_or_else(not_found)?;
        Ok((feed, version, task))
    }

    /// Events of a task. `from` is the number of the last event that the client has; without one the subscription
    /// begins with a snapshot. It ends behind a record that ends an execution.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn subscribe(
        &self,
        id: &TaskId,
        from: Option<Version>,
    ) -> Result<TaskSubscription, ReadTaskError> {
        let (feed, version, task) = self.current(id).await?;
        let log = Arc::clone(&self.inner.log);
        Ok(match from {
            Some(cursor) if cursor >= version && task.has_ended() => {
                TaskSubscription::of_nothing(log, feed, cursor, id.clone())
            }
            Some(cursor) => TaskSubscription::from_cursor(log, feed, cursor, id.clone()),
            None => TaskSubscription::from_snapshot(log, feed, version, task),
        })
    }

    /// A page of at most `limit` tasks behind a position. A filter by owner alone costs as much as the page; every other
    /// filter looks at all tasks, in steps between which other requests have their turn.
    pub fn list(
        &self,
        filter: &ListFilter,
        behind: Option<&TaskPosition>,
        limit: usize,
    ) -> TaskPage {
        let known_total = self.inner.table.lock().known_total(filter);
        // The total is counted from the newest task on.
        let mut position = known_total.and(behind.cloned());
        let (mut tasks, mut counted) = (Vec::new(), 0);
        loop {
            let table = self.inner.table.lock();
            let mut last = None;
            for task in table.newest_first(position.as_ref()).take(SCAN_LEN_MAX) {
                last = Some(task);
                if !filter.lets_through(task) {
                    continue;
                }
                counted += 1;
                if tasks.len() <= limit && task.is_behind(behind) {
                    tasks.push(task.clone());
                }
            }
            let is_full = known_total.is_some() && tasks.len() > limit;
            position = last.map(|task| (task.updated_at, task.id.clone()));
            if is_full || position.is_none() {
                break;
            }
        }
        let has_more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks
            .last()
            .filter(|_| has_more)
            .map(|last| (last.updated_at, last.id.clone()));
        let total = known_total.unwrap_or(counted);
        TaskPage { tasks, next, total }
    }
}

impl ListFilter {
    /// The owner, if nothing else narrows the list.
    pub(super) fn only_owner(&self) -> Option<&Arc<str>> {
        let has_more =
            self.context_id.is_some() || self.state.is_some() || self.updated_after.is_some();
        self.owner.as_ref().filter(|_| !has_more)
    }

    fn lets_through(&self, task: &TaskSummary) -> bool {
        !task.is_reply
            && self.owner.as_ref().is_none_or(|owner| *owner == task.owner)
            && self
                .context_id
                .as_ref()
                .is_none_or(|context| *context == task.context_id)
            && self.state.is_none_or(|state| state == task.state)
            && self
                .updated_after
                .is_none_or(|after| task.updated_at > after)
    }
}
