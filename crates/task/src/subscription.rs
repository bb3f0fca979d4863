//! A client's view of one task: a snapshot, then each later record.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::{Log, Version};

use crate::error::ReadTaskError;
use crate::feed::{FeedRead, TaskFeed, TaskUpdate};
use crate::model::Task;
use crate::task_stream::{READ_LEN_MAX, read_updates, tail_updates};

/// Reads a task's records by cursor. A slow or absent reader costs the executor nothing and misses nothing.
#[derive(Debug)]
pub struct TaskSubscription {
    task_id: TaskId,
    log: Arc<dyn Log>,
    /// `None`: other processes may write the task, so its log is followed.
    feed: Option<Arc<TaskFeed>>,
    cursor: Version,
    read: VecDeque<TaskUpdate>,
    snapshot: Option<Arc<Task>>,
    /// True if nothing follows the snapshot.
    is_snapshot_last: bool,
    has_ended: bool,
}

/// Item of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionItem {
    /// The task when the subscription began, with the number of its last record. The first item, if there is one.
    Snapshot(Version, Arc<Task>),
    /// A later record.
    Update(TaskUpdate),
}

impl TaskSubscription {
    pub(crate) fn from_snapshot(
        log: Arc<dyn Log>,
        feed: Option<Arc<TaskFeed>>,
        cursor: Version,
        task: Arc<Task>,
        is_last: bool,
    ) -> Self {
        let id = task.id.clone();
        Self {
            snapshot: Some(task),
            is_snapshot_last: is_last,
            ..Self::from_cursor(log, feed, cursor, id)
        }
    }

    pub(crate) fn from_cursor(
        log: Arc<dyn Log>,
        feed: Option<Arc<TaskFeed>>,
        cursor: Version,
        task_id: TaskId,
    ) -> Self {
        Self {
            task_id,
            log,
            feed,
            cursor,
            read: VecDeque::new(),
            snapshot: None,
            is_snapshot_last: false,
            has_ended: false,
        }
    }

    /// A subscription behind the last record of a task that has ended.
    pub(crate) fn of_nothing(
        log: Arc<dyn Log>,
        feed: Option<Arc<TaskFeed>>,
        cursor: Version,
        task_id: TaskId,
    ) -> Self {
        Self {
            has_ended: true,
            ..Self::from_cursor(log, feed, cursor, task_id)
        }
    }

    /// The task.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// Number of the last record that was returned: a later subscription continues behind it.
    pub fn cursor(&self) -> Version {
        self.cursor
    }

    /// The next item; `None` behind a record that ends an execution.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is skipped.
    pub async fn next(&mut self) -> Option<Result<SubscriptionItem, ReadTaskError>> {
        if let Some(task) = self.snapshot.take() {
            self.has_ended = self.is_snapshot_last;
            return Some(Ok(SubscriptionItem::Snapshot(self.cursor, task)));
        }
        if self.has_ended {
            return None;
        }
        while self.read.is_empty() {
            let (log, id) = (&*self.log, &self.task_id);
            let read = match &self.feed {
                None => tail_updates(log, id, self.cursor, READ_LEN_MAX).await,
                Some(feed) => match feed.read_after(self.cursor).await {
                    FeedRead::Updates(updates) => Ok(updates),
                    FeedRead::ReadLog => read_updates(log, id, self.cursor, READ_LEN_MAX).await,
                },
            };
            match read {
                Ok(updates) => self.read = updates.into(),
                Err(error) => return Some(Err(error.into())),
            }
        }
        let update = self.read.pop_front()?;
        self.cursor = update.version;
        self.has_ended = update.record.ends_execution();
        Some(Ok(SubscriptionItem::Update(update)))
    }
}
