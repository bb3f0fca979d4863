//! The records of one task for a client: first a snapshot, then each later record.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::{Log, Version};

use crate::cluster::RemoteLiveText;
use crate::error::ReadTaskError;
use crate::feed::{FeedRead, TaskFeed, TaskUpdate};
use crate::model::Task;
use crate::task_stream::{READ_LEN_MAX, read_updates, tail_updates};

/// Reads the records of a task with a cursor. A slow or absent reader does not delay the executor. No reader misses a
/// record.
#[derive(Debug)]
pub struct TaskSubscription {
    task_id: TaskId,
    log: Arc<dyn Log>,
    /// `None` if other processes may write to the task. The subscription then reads the log.
    feed: Option<Arc<TaskFeed>>,
    /// Source of the live text of a task that another process may run.
    remote: Option<RemoteLiveText>,
    cursor: Version,
    read: VecDeque<TaskUpdate>,
    snapshot: Option<Arc<Task>>,
    /// Number of the last record of the subscription, if no further execution is awaited.
    last: Option<Version>,
    /// True if the subscription ends when the manager leaves the awaited execution to the next manager.
    is_of_execution: bool,
    has_ended: bool,
}

/// Item of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionItem {
    /// The task at the start of the subscription, with the number of its last record. A snapshot is always the first
    /// item.
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
        let (id, last) = (task.id.clone(), is_last.then_some(cursor));
        Self {
            snapshot: Some(task),
            ..Self::from_cursor(log, feed, cursor, last, id)
        }
    }

    pub(crate) fn from_cursor(
        log: Arc<dyn Log>,
        feed: Option<Arc<TaskFeed>>,
        cursor: Version,
        last: Option<Version>,
        task_id: TaskId,
    ) -> Self {
        Self {
            task_id,
            log,
            feed,
            remote: None,
            cursor,
            read: VecDeque::new(),
            snapshot: None,
            last,
            is_of_execution: false,
            has_ended: false,
        }
    }

    /// Makes the subscription end if the manager shuts down before the awaited execution has started.
    pub(crate) fn of_execution(mut self) -> Self {
        self.is_of_execution = true;
        self
    }

    /// Adds the source of the live text in a cluster.
    pub(crate) fn with_remote(mut self, remote: Option<RemoteLiveText>) -> Self {
        self.remote = remote;
        self
    }

    /// Takes the source of the live text in a cluster, for the part of the subscription that reads it.
    pub(crate) fn take_remote(&mut self) -> Option<RemoteLiveText> {
        self.remote.take()
    }

    pub(crate) fn feed(&self) -> Option<&Arc<TaskFeed>> {
        self.feed.as_ref()
    }

    /// The task.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// Number of the last record that was returned. A later subscription can continue after this number.
    pub fn cursor(&self) -> Version {
        self.cursor
    }

    /// The next item; `None` after a record that ends an execution. A subscription to an execution also ends if the manager
    /// shuts down before the execution has started, and leaves it to the next manager.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call skips no item.
    pub async fn next(&mut self) -> Option<Result<SubscriptionItem, ReadTaskError>> {
        if let Some(task) = self.snapshot.take() {
            return Some(Ok(SubscriptionItem::Snapshot(self.cursor, task)));
        }
        if self.has_ended || self.last.is_some_and(|last| self.cursor >= last) {
            return None;
        }
        while self.read.is_empty() {
            let (log, id) = (&*self.log, &self.task_id);
            let read = match &self.feed {
                None => tail_updates(log, id, self.cursor, READ_LEN_MAX).await,
                Some(feed) => match feed.read_after(self.cursor, self.is_of_execution).await {
                    FeedRead::Updates(updates) => Ok(updates),
                    FeedRead::ReadLog => read_updates(log, id, self.cursor, READ_LEN_MAX).await,
                    FeedRead::Left => return None,
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
