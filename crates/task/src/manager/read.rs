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

    /// A page of at most `limit` tasks behind a position.
    pub fn list(
        &self,
        filter: &ListFilter,
        behind: Option<&TaskPosition>,
        limit: usize,
    ) -> TaskPage {
        let table = self.inner.table.lock();
        let total = table
            .newest_first(None)
            .filter(|task| filter.lets_through(task))
            .count();
        let mut tasks: Vec<_> = table
            .newest_first(behind)
            .filter(|task| filter.lets_through(task))
            .take(limit.saturating_add(1))
            .cloned()
            .collect();
        let has_more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks
            .last()
            .filter(|_| has_more)
            .map(|last| (last.updated_at, last.id.clone()));
        TaskPage { tasks, next, total }
    }
}

impl ListFilter {
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
