//! Removes ended tasks from the table, and puts them back if the store does not delete them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use allstop_core::{ContextId, MessageId, TaskId, Timestamp};
use allstop_log::Version;

use super::{TaskEntry, TaskTable};
use crate::manager::TaskSummary;

/// A map that uses less than this part of its place is made smaller.
const SHRINK_FACTOR: usize = 4;

/// A task that was taken out of the table, to be deleted in the store.
#[derive(Debug)]
pub(crate) struct RemovedTask {
    pub(crate) id: TaskId,
    /// Number of the last durable record.
    pub(crate) version: Version,
    entry: TaskEntry,
    /// Accepted messages, with the times of their acceptance.
    accepted: Vec<(MessageId, Timestamp)>,
}

/// Answer of the table to a removal.
#[derive(Debug)]
pub(crate) enum TaskRemoval {
    Removed(RemovedTask),
    /// The data of this context must be deleted first, because the task is the last task of the context.
    LastOfContext(ContextId),
    /// The task has no end, does not exist, has an execution, is being read, or is unreadable.
    InUse,
}

impl TaskTable {
    /// Takes an ended task out of the table, so that it no longer exists for clients. `freed` is a context whose data is
    /// deleted; only the last task of another context stays.
    pub(crate) fn take_out(&mut self, id: &TaskId, freed: Option<&ContextId>) -> TaskRemoval {
        let Some(entry) = self.tasks.get(id) else {
            return TaskRemoval::InUse;
        };
        let has_ended = |task: &TaskSummary| task.has_ended() && !task.is_executing;
        let is_read = entry.feed.strong_count() > 0 || self.check_readable(id).is_err();
        if !entry.summary.as_ref().is_some_and(has_ended) || entry.execution.is_some() || is_read {
            return TaskRemoval::InUse;
        }
        let Some(context) = self.contexts.get_mut(&entry.context) else {
            return TaskRemoval::InUse;
        };
        if context.tasks - context.leaving <= 1 && freed != Some(&entry.context) {
            return TaskRemoval::LastOfContext(entry.context.clone());
        }
        let Some(entry) = self.tasks.remove(id) else {
            return TaskRemoval::InUse;
        };
        context.leaving += 1;
        if let Some(summary) = &entry.summary {
            self.unlist(summary);
        }
        let accepted = entry.messages.iter().filter_map(|message| {
            let at = self.forget_accepted(&entry.owner, message, id)?;
            Some((message.clone(), at))
        });
        let accepted = accepted.collect();
        TaskRemoval::Removed(RemovedTask {
            id: id.clone(),
            version: entry.version,
            entry,
            accepted,
        })
    }

    /// Completes the removal of a task that the store has deleted.
    pub(crate) fn complete_removal(&mut self, removed: &RemovedTask) {
        if let Some(context) = self.contexts.get_mut(&removed.entry.context) {
            context.leaving -= 1;
        }
        self.leave_context(&removed.entry.context);
    }

    /// Puts a task back whose deletion failed in the store.
    pub(crate) fn put_back(&mut self, removed: RemovedTask) {
        let RemovedTask {
            id,
            entry,
            accepted,
            ..
        } = removed;
        if let Some(context) = self.contexts.get_mut(&entry.context) {
            context.leaving -= 1;
        }
        if let Some(summary) = &entry.summary {
            self.list(summary);
        }
        for (message, at) in accepted {
            // A message with the same id may have started another task in the meantime.
            let known = self.by_message.entry((Arc::clone(&entry.owner), message));
            known.or_insert_with(|| (id.clone(), at));
        }
        self.tasks.insert(id, entry);
    }

    /// Frees memory after many tasks were removed.
    pub(crate) fn shrink(&mut self) {
        shrink(&mut self.tasks);
        shrink(&mut self.by_message);
        shrink(&mut self.contexts);
        shrink(&mut self.listed);
    }
}

fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    // Half of the place stays free, so that the next tasks do not make the map grow at once.
    if map.capacity() / SHRINK_FACTOR > map.len() {
        map.shrink_to(map.len() * 2);
    }
}
