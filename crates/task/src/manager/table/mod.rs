//! Table of all tasks, in memory, with one lock that is held only for a short time. Decisions about requests do not
//! read the log.
//!
//! Invariants:
//! 1. A task has at most one execution. The execution enters the table before its first record, and leaves the table
//!    after its last record.
//! 2. The decision that a message or a stop may start an execution, and the entry of this execution in the table, are
//!    one step under the lock.
//! 3. An unreadable task has no execution, and is not removed.

mod removal;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

use allstop_core::{ContextId, MessageId, TaskId, Timestamp};
use allstop_log::Version;

use super::list::{ListFilter, TaskSummary};
use super::slots::ExecutionSlots;
use crate::error::{CancelError, ExecuteError, TaskStoreError};
use crate::execution::Execution;
use crate::feed::TaskFeed;
use crate::model::Task;

pub(crate) use removal::{RemovedTask, TaskRemoval};

#[derive(Debug)]
pub(crate) struct TaskTable {
    tasks: HashMap<TaskId, TaskEntry>,
    /// Sorted by the time of the last record. Lists begin with the newest task.
    by_time: BTreeSet<(Timestamp, TaskId)>,
    /// Number of tasks in the lists of each owner.
    listed: HashMap<Arc<str>, usize>,
    /// Accepted messages, by owner and id. A repeated message starts no execution.
    by_message: HashMap<(Arc<str>, MessageId), (TaskId, Timestamp)>,
    contexts: HashMap<ContextId, ContextEntry>,
    /// Tasks with a record that cannot be read. Such a task has an entry only if its first record can be read.
    unreadable: HashMap<TaskId, TaskStoreError>,
    /// Tasks whose executions have left the queue without a start, because the manager shuts down.
    kept_waiting: HashSet<TaskId>,
    pub(crate) slots: ExecutionSlots,
    pub(crate) is_closed: bool,
    /// True after the manager stops accepting messages. Stops are still accepted.
    pub(crate) is_draining: bool,
}

#[derive(Debug)]
struct TaskEntry {
    /// Summary of the task. `None` until the first record is durable.
    summary: Option<TaskSummary>,
    owner: Arc<str>,
    context: ContextId,
    /// Number of the last durable record.
    version: Version,
    /// Accepted messages of the task.
    messages: Vec<MessageId>,
    execution: Option<Arc<Execution>>,
    feed: Weak<TaskFeed>,
}

/// A context with at least one task in the table.
#[derive(Debug)]
struct ContextEntry {
    /// Owner of the first task.
    owner: Arc<str>,
    /// Number of tasks, including the tasks that are being deleted in the store.
    tasks: usize,
    /// Number of tasks that are being deleted in the store. Until the store has confirmed the deletion, the context
    /// belongs to their owner: after a crash, the tasks may still be in the store.
    leaving: usize,
}

/// State of a task, as far as a stop needs it.
pub(crate) enum TaskToStop {
    Running(Arc<Execution>),
    AtRest,
    Ended,
}

impl TaskEntry {
    /// Entry of a task without an execution.
    fn of(task: &Task, feed: &Arc<TaskFeed>) -> Self {
        Self {
            summary: None,
            owner: Arc::clone(&task.owner),
            context: task.context_id.clone(),
            version: Version(0),
            messages: Vec::new(),
            execution: None,
            feed: Arc::downgrade(feed),
        }
    }
}

impl TaskTable {
    pub(crate) fn new(slots: ExecutionSlots) -> Self {
        Self {
            tasks: HashMap::new(),
            by_time: BTreeSet::new(),
            listed: HashMap::new(),
            by_message: HashMap::new(),
            contexts: HashMap::new(),
            unreadable: HashMap::new(),
            kept_waiting: HashSet::new(),
            slots,
            is_closed: false,
            is_draining: false,
        }
    }

    /// The task that this message of the owner has started or continued. `None` if no such message was accepted, or if
    /// it was accepted at or before `since`.
    pub(crate) fn task_of_message(
        &self,
        owner: &Arc<str>,
        message: &MessageId,
        since: Option<Timestamp>,
    ) -> Option<&TaskId> {
        let known = self.by_message.get(&(Arc::clone(owner), message.clone()));
        let (id, at) = known?;
        since.is_none_or(|since| *at > since).then_some(id)
    }

    /// Checks that a new task of this owner may belong to the context.
    pub(crate) fn check_context(
        &self,
        context: &ContextId,
        owner: &Arc<str>,
    ) -> Result<(), ExecuteError> {
        // A task without an entry belongs to an unknown context.
        let has_unknown = || {
            self.unreadable
                .keys()
                .any(|id| !self.tasks.contains_key(id))
        };
        match self.contexts.get(context) {
            Some(known) if known.owner == *owner => Ok(()),
            Some(_) => Err(ExecuteError::ContextOfOther(context.clone())),
            None if has_unknown() => Err(ExecuteError::ContextUnreadable(context.clone())),
            None => Ok(()),
        }
    }

    /// Inserts the entry of a task. A context without tasks now belongs to the owner of the task.
    fn insert(&mut self, id: &TaskId, entry: TaskEntry) {
        let context = self.contexts.entry(entry.context.clone());
        let context = context.or_insert_with(|| ContextEntry {
            owner: Arc::clone(&entry.owner),
            tasks: 0,
            leaving: 0,
        });
        context.tasks += 1;
        self.tasks.insert(id.clone(), entry);
    }

    /// Removes a task from its context. A context without tasks then has no owner.
    fn leave_context(&mut self, context: &ContextId) {
        if let Some(known) = self.contexts.get_mut(context) {
            known.tasks -= 1;
            if known.tasks == 0 {
                self.contexts.remove(context);
            }
        }
    }

    /// Enters a new task with its execution.
    pub(crate) fn enter_new(
        &mut self,
        id: &TaskId,
        context: &ContextId,
        owner: &Arc<str>,
        execution: Arc<Execution>,
        feed: &Arc<TaskFeed>,
    ) {
        let entry = TaskEntry {
            summary: None,
            owner: Arc::clone(owner),
            context: context.clone(),
            version: Version(0),
            messages: Vec::new(),
            execution: Some(execution),
            feed: Arc::downgrade(feed),
        };
        self.insert(id, entry);
    }

    /// Enters the execution of a task that this process has taken over, in a cluster.
    pub(crate) fn enter_taken(
        &mut self,
        task: &Task,
        execution: Arc<Execution>,
        feed: &Arc<TaskFeed>,
    ) {
        let entry = TaskEntry {
            execution: Some(execution),
            ..TaskEntry::of(task, feed)
        };
        self.insert(&task.id, entry);
    }

    /// Checks whether a message may start an execution of an existing task. Returns `Ok(Some(_))` if an execution is
    /// about to end: the caller then waits for its release and checks again.
    pub(crate) fn check_message(
        &self,
        id: &TaskId,
        context: Option<&ContextId>,
    ) -> Result<Option<Arc<Execution>>, ExecuteError> {
        self.check_readable(id)?;
        let entry = self.tasks.get(id);
        let entry = entry.ok_or_else(|| ExecuteError::NotFound(id.clone()))?;
        if let Some(execution) = &entry.execution {
            return if execution.is_ending() {
                Ok(Some(Arc::clone(execution)))
            } else if execution.is_stopping() {
                Err(ExecuteError::CancellationInProgress(id.clone()))
            } else {
                Err(ExecuteError::ExecutionInProgress(id.clone()))
            };
        }
        let summary = entry.summary.as_ref();
        let summary = summary.ok_or_else(|| ExecuteError::NotFound(id.clone()))?;
        if summary.has_ended() {
            return Err(ExecuteError::Ended {
                id: id.clone(),
                state: summary.state,
            });
        }
        if summary.is_executing {
            // Another process runs the task, or the end of the last execution is not durable. A stop can still end the
            // task.
            return Err(ExecuteError::ExecutionInProgress(id.clone()));
        }
        if context.is_some_and(|context| *context != summary.context_id) {
            return Err(ExecuteError::OtherContext(id.clone()));
        }
        Ok(None)
    }

    /// Notes that the execution of a task stays in the store, for the next manager.
    pub(crate) fn keep_waiting(&mut self, id: &TaskId) {
        self.kept_waiting.insert(id.clone());
    }

    /// Number of tasks whose executions wait in the store for the next manager.
    pub(crate) fn kept_waiting(&self) -> usize {
        self.kept_waiting.len()
    }

    /// Enters an execution of a task at rest.
    pub(crate) fn enter(&mut self, id: &TaskId, execution: Arc<Execution>) {
        // Only a stop enters such a task again, and the stop ends the task.
        self.kept_waiting.remove(id);
        if let Some(entry) = self.tasks.get_mut(id) {
            entry.execution = Some(execution);
        }
    }

    /// Remembers an accepted message of a task in the table.
    pub(crate) fn remember_message(
        &mut self,
        owner: &Arc<str>,
        message: &MessageId,
        id: &TaskId,
        at: Timestamp,
    ) {
        if let Some(entry) = self.tasks.get_mut(id) {
            entry.messages.push(message.clone());
        }
        let message = (Arc::clone(owner), message.clone());
        self.by_message.insert(message, (id.clone(), at));
    }

    /// Removes a message that was not accepted, unless a later message with the same id has reached another task.
    pub(crate) fn forget_message(&mut self, owner: &Arc<str>, message: &MessageId, of: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(of) {
            entry.messages.retain(|known| known != message);
        }
        self.forget_accepted(owner, message, of);
    }

    /// Removes a message of a task. Returns the time of its acceptance. `None` if a later message with the same id has
    /// reached another task.
    fn forget_accepted(
        &mut self,
        owner: &Arc<str>,
        message: &MessageId,
        of: &TaskId,
    ) -> Option<Timestamp> {
        let message = (Arc::clone(owner), message.clone());
        let (_, at) = self.by_message.get(&message).filter(|(id, _)| id == of)?;
        let at = *at;
        self.by_message.remove(&message);
        Some(at)
    }

    /// Marks a task of the store as unreadable.
    pub(crate) fn set_unreadable(&mut self, id: TaskId, error: TaskStoreError) {
        self.unreadable.insert(id, error);
    }

    /// Unreadable tasks, with the reasons.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = (&TaskId, &TaskStoreError)> {
        self.unreadable.iter()
    }

    /// Returns the reason if the task is unreadable.
    pub(crate) fn check_readable(&self, id: &TaskId) -> Result<(), TaskStoreError> {
        self.unreadable.get(id).cloned().map_or(Ok(()), Err)
    }

    pub(crate) fn stop_target(&self, id: &TaskId) -> Result<TaskToStop, CancelError> {
        self.check_readable(id)?;
        let entry = self.tasks.get(id);
        let entry = entry.ok_or_else(|| CancelError::NotFound(id.clone()))?;
        Ok(match (&entry.execution, &entry.summary) {
            (Some(execution), _) => TaskToStop::Running(Arc::clone(execution)),
            (None, Some(summary)) if summary.has_ended() => TaskToStop::Ended,
            (None, _) => TaskToStop::AtRest,
        })
    }

    /// True if no execution is open according to the last durable record, and the manager may start executions.
    pub(crate) fn may_wake(&self, id: &TaskId) -> bool {
        let rests = self.summary(id).is_some_and(|task| !task.is_executing);
        rests && !self.is_closed && !self.is_draining
    }

    /// Updates the entry of a task, whose last durable record has the number `version`.
    pub(crate) fn note(&mut self, version: Version, task: &Task, feed: &Arc<TaskFeed>) {
        if !self.tasks.contains_key(&task.id) {
            self.insert(&task.id, TaskEntry::of(task, feed));
        }
        let Some(entry) = self.tasks.get_mut(&task.id) else {
            return;
        };
        let summary = TaskSummary::of(task);
        entry.version = version;
        let before = entry.summary.replace(summary.clone());
        if let Some(before) = before {
            self.unlist(&before);
        }
        self.list(&summary);
    }

    /// Adds a task to the lists.
    fn list(&mut self, task: &TaskSummary) {
        self.by_time.insert((task.updated_at, task.id.clone()));
        if !task.is_reply {
            *self.listed.entry(Arc::clone(&task.owner)).or_default() += 1;
        }
    }

    /// Removes a task from the lists.
    fn unlist(&mut self, task: &TaskSummary) {
        self.by_time.remove(&(task.updated_at, task.id.clone()));
        if !task.is_reply
            && let Some(listed) = self.listed.get_mut(&task.owner)
        {
            *listed -= 1;
            if *listed == 0 {
                self.listed.remove(&task.owner);
            }
        }
    }

    /// Removes an execution that has ended. A task without a durable record is removed too.
    pub(crate) fn release(&mut self, id: &TaskId) {
        let Some(entry) = self.tasks.get_mut(id) else {
            return;
        };
        entry.execution = None;
        if entry.summary.is_none()
            && let Some(entry) = self.tasks.remove(id)
        {
            self.leave_context(&entry.context);
            for message in &entry.messages {
                self.forget_accepted(&entry.owner, message, id);
            }
        }
    }

    /// The feed of a task. If no feed is in use, creates one. `None` if the task does not exist.
    pub(crate) fn feed(&mut self, id: &TaskId) -> Option<Arc<TaskFeed>> {
        let entry = self.tasks.get_mut(id)?;
        Some(entry.feed.upgrade().unwrap_or_else(|| {
            let feed = Arc::default();
            entry.feed = Arc::downgrade(&feed);
            feed
        }))
    }

    /// The current execution of a task.
    pub(crate) fn execution(&self, id: &TaskId) -> Option<Arc<Execution>> {
        self.tasks.get(id)?.execution.clone()
    }

    pub(crate) fn summary(&self, id: &TaskId) -> Option<&TaskSummary> {
        self.tasks.get(id)?.summary.as_ref()
    }

    /// Number of tasks that match a filter, if the table knows this number without a scan.
    pub(super) fn known_total(&self, filter: &ListFilter) -> Option<usize> {
        let owner = filter.only_owner()?;
        Some(self.listed.get(owner).copied().unwrap_or(0))
    }

    /// Tasks that come after a position, from the newest change to the oldest.
    pub(crate) fn newest_first(
        &self,
        before: Option<&(Timestamp, TaskId)>,
    ) -> impl Iterator<Item = &TaskSummary> {
        let end = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.by_time
            .range((std::ops::Bound::Unbounded, end))
            .rev()
            .filter_map(|(_, id)| self.summary(id))
    }

    pub(crate) fn executions(&self) -> Vec<Arc<Execution>> {
        let executions = self.executions_by_task().into_iter();
        executions.map(|(_, execution)| execution).collect()
    }

    /// The executions with the ids of their tasks.
    pub(crate) fn executions_by_task(&self) -> Vec<(TaskId, Arc<Execution>)> {
        let of_entry = |(id, entry): (&TaskId, &TaskEntry)| {
            let execution = entry.execution.clone()?;
            Some((id.clone(), execution))
        };
        self.tasks.iter().filter_map(of_entry).collect()
    }
}
