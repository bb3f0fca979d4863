//! Distribution of a task's records to its subscribers.
//!
//! Invariants:
//! 1. A record is published only after it is durable.
//! 2. A publisher never waits for a subscriber. Each subscriber has its own cursor, and reads from the window of recent
//!    records or from the log.
//! 3. Live text is not stored: see [`crate::live_text`].

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_log::Version;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::live_text::{LiveCursor, LivePiece, LiveText, is_shown_in};
use crate::model::{Task, TaskRecord};

/// Number of recent records in memory. A subscriber that is not far behind the writer never needs to read the log.
const WINDOW_LEN_MAX: usize = 256;

/// A durable record and its number.
#[derive(Debug, Clone)]
pub struct TaskUpdate {
    /// Number of the record in the stream of the task. This number is also the cursor after this update.
    pub version: Version,
    /// The record.
    pub record: Arc<TaskRecord>,
}

/// The current task and its recent records. The writer and the subscribers of the task share the feed.
#[derive(Debug, Default)]
pub(crate) struct TaskFeed {
    state: Mutex<FeedState>,
    grown: Notify,
    /// Separate from `grown`, so that a piece of text does not wake subscribers that wait for a record only.
    live_grown: Notify,
}

#[derive(Debug, Default)]
struct FeedState {
    version: Version,
    task: Option<Arc<Task>>,
    window: VecDeque<TaskUpdate>,
    live: LiveText,
    /// True after the awaited execution was left to the next manager.
    is_left: bool,
}

/// Records after a cursor.
pub(crate) enum FeedRead {
    /// Records from the window.
    Updates(Vec<TaskUpdate>),
    /// The window begins after the cursor. The subscriber must read the log up to this version.
    ReadLog,
    /// There are no more records, and this manager starts no execution of the task.
    Left,
}

impl TaskFeed {
    /// The task as last read or written, with its version. `None` if the task was not read yet.
    pub(crate) fn current(&self) -> Option<(Version, Arc<Task>)> {
        let state = self.state.lock();
        let task = state.task.as_ref()?;
        Some((state.version, Arc::clone(task)))
    }

    /// Sets the task as it was read from the log, unless the feed has a later version.
    pub(crate) fn set_read(&self, version: Version, task: &Arc<Task>) {
        let mut state = self.state.lock();
        if state.version < version || state.task.is_none() {
            state.version = version;
            state.task = Some(Arc::clone(task));
            state.window.clear();
        }
        drop(state);
        self.grown.notify_waiters();
    }

    /// Drops the task, because the store may contain more records. The next reader then reads the store.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.task = None;
        state.window.clear();
    }

    /// Ends the subscriptions to the awaited execution, after the records so far. The next manager starts this execution.
    pub(crate) fn leave(&self) {
        self.state.lock().is_left = true;
        self.grown.notify_waiters();
    }

    /// Publishes durable records. `task` is the task after the last of these records.
    pub(crate) fn publish(&self, records: Vec<TaskUpdate>, task: &Arc<Task>) {
        let mut state = self.state.lock();
        let Some(last) = records.last() else {
            return;
        };
        state.version = last.version;
        state.task = Some(Arc::clone(task));
        for update in &records {
            state.live.note(&update.record);
        }
        state.window.extend(records);
        let excess = state.window.len().saturating_sub(WINDOW_LEN_MAX);
        state.window.drain(..excess);
        drop(state);
        self.grown.notify_waiters();
    }

    /// Returns the records after `cursor`. Waits until there is at least one record. A subscription to an execution
    /// (`is_of_execution`) also waits until the execution is left to the next manager.
    pub(crate) async fn read_after(&self, cursor: Version, is_of_execution: bool) -> FeedRead {
        loop {
            // Registered before the check: a record that is published after the check then wakes this reader.
            let grown = self.grown.notified();
            if let Some(read) = self.try_read_after(cursor, is_of_execution) {
                return read;
            }
            grown.await;
        }
    }

    fn try_read_after(&self, cursor: Version, is_of_execution: bool) -> Option<FeedRead> {
        let state = self.state.lock();
        if state.version <= cursor {
            return (state.is_left && is_of_execution).then_some(FeedRead::Left);
        }
        let first = state.window.front().map(|update| update.version);
        let Some(behind) = first.and_then(|first| cursor.next().0.checked_sub(first.0)) else {
            return Some(FeedRead::ReadLog);
        };
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        let updates = state.window.iter().skip(behind).cloned().collect();
        Some(FeedRead::Updates(updates))
    }

    /// Changes the live text.
    pub(crate) fn set_live(&self, change: impl FnOnce(&mut LiveText)) {
        change(&mut self.state.lock().live);
        self.live_grown.notify_waiters();
    }

    /// Returns the live text after a position, for a subscriber that has received the records up to this version. Waits
    /// until there is text.
    pub(crate) async fn read_live_after(
        &self,
        records_until: Version,
        cursor: LiveCursor,
    ) -> (LivePiece, LiveCursor) {
        loop {
            // Registered before the check, like in `read_after`.
            let grown = self.live_grown.notified();
            if let Some(read) = self.try_read_live_after(records_until, cursor) {
                return read;
            }
            grown.await;
        }
    }

    fn try_read_live_after(
        &self,
        records_until: Version,
        cursor: LiveCursor,
    ) -> Option<(LivePiece, LiveCursor)> {
        let state = self.state.lock();
        let task = state.task.as_ref()?;
        let is_shown = state.version == records_until && is_shown_in(task.status.state);
        is_shown.then(|| state.live.after(cursor))?
    }
}
