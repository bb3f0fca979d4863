//! Lists of tasks, with summaries, filters and pages.

use std::sync::Arc;

use allstop_core::{ContextId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::{Task, TaskState};

/// Summary of a task, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// Id of the task.
    pub id: TaskId,
    /// Context of the task.
    pub context_id: ContextId,
    /// Principal that owns the task.
    pub owner: Arc<str>,
    /// Last durable state.
    pub state: TaskState,
    /// True from the start of an execution until the record that ends it.
    pub is_executing: bool,
    /// True if the executor answered with a message. Clients then do not see the task.
    pub is_reply: bool,
    /// Time of the last durable record.
    pub updated_at: Timestamp,
}

impl TaskSummary {
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            id: task.id.clone(),
            context_id: task.context_id.clone(),
            owner: Arc::clone(&task.owner),
            state: task.status.state,
            is_executing: task.is_executing,
            is_reply: task.reply.is_some(),
            updated_at: task.updated_at,
        }
    }

    /// True if the task comes after this position in a list.
    pub(crate) fn is_after(&self, position: Option<&TaskPosition>) -> bool {
        position.is_none_or(|(at, id)| (self.updated_at, &self.id) < (*at, id))
    }

    /// True if the task runs, or waits for its first execution.
    pub(crate) fn needs_worker(&self) -> bool {
        !self.has_ended() && (self.is_executing || self.state == TaskState::Submitted)
    }

    /// True if the task has ended. Only late receipts (of executions that a worker has lost) can follow.
    pub fn has_ended(&self) -> bool {
        self.state.is_terminal() || self.is_reply
    }
}

/// Filter of a list. A task must match every field that is set.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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

/// Position in a list: the time of the last change and the id of the last task of a page.
pub type TaskPosition = (Timestamp, TaskId);

/// Page of a list. The task with the newest change comes first.
#[derive(Debug, Clone)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskSummary>,
    /// Position of the next page; `None` for the last page.
    pub next: Option<TaskPosition>,
    /// Number of tasks that match the filter.
    pub total: usize,
}

impl TaskPage {
    /// Creates a page with the first `limit` of these tasks.
    pub(crate) fn first(mut tasks: Vec<TaskSummary>, limit: usize, total: usize) -> Self {
        let has_more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks
            .last()
            .filter(|_| has_more)
            .map(|last| (last.updated_at, last.id.clone()));
        Self { tasks, next, total }
    }
}

impl ListFilter {
    /// Selects the tasks of this principal.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Selects the tasks of this context.
    #[must_use]
    pub fn context_id(mut self, context_id: impl Into<Option<ContextId>>) -> Self {
        self.context_id = context_id.into();
        self
    }

    /// Selects the tasks in this state.
    #[must_use]
    pub fn state(mut self, state: impl Into<Option<TaskState>>) -> Self {
        self.state = state.into();
        self
    }

    /// Selects the tasks that have changed after this time.
    #[must_use]
    pub fn updated_after(mut self, updated_after: impl Into<Option<Timestamp>>) -> Self {
        self.updated_after = updated_after.into();
        self
    }

    /// The owner, if the filter has no other field.
    pub(super) fn only_owner(&self) -> Option<&Arc<str>> {
        let has_more =
            self.context_id.is_some() || self.state.is_some() || self.updated_after.is_some();
        self.owner.as_ref().filter(|_| !has_more)
    }

    pub(crate) fn lets_through(&self, task: &TaskSummary) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> TaskSummary {
        TaskSummary {
            id: TaskId::new("t"),
            context_id: ContextId::new("c1"),
            owner: "alice".into(),
            state: TaskState::Working,
            is_executing: true,
            is_reply: false,
            updated_at: Timestamp::from_unix_ms(10),
        }
    }

    fn of_alice() -> ListFilter {
        ListFilter {
            owner: Some("alice".into()),
            ..ListFilter::default()
        }
    }

    /// Returns pairs of filters. The first filter of a pair has one more field, which matches the task. The second
    /// filter has a value in this field that does not match.
    fn narrower() -> [(ListFilter, ListFilter); 3] {
        let after = |ms| Some(Timestamp::from_unix_ms(ms));
        let context = |id| Some(ContextId::new(id));
        let of = |context_id, state, updated_after| ListFilter {
            context_id,
            state,
            updated_after,
            ..of_alice()
        };
        [
            (of(context("c1"), None, None), of(context("c2"), None, None)),
            (
                of(None, Some(TaskState::Working), None),
                of(None, Some(TaskState::Failed), None),
            ),
            (of(None, None, after(9)), of(None, None, after(10))),
        ]
    }

    #[test]
    fn every_field_narrows_the_list() {
        let task = summary();
        assert!(of_alice().lets_through(&task) && ListFilter::default().lets_through(&task));
        for (fits, other) in narrower() {
            assert!(fits.lets_through(&task), "{fits:?}");
            assert!(!other.lets_through(&task), "{other:?}");
            let of_bob = ListFilter {
                owner: Some("bob".into()),
                ..fits
            };
            assert!(!of_bob.lets_through(&task), "{of_bob:?}");
        }
        let reply = TaskSummary {
            is_reply: true,
            ..task
        };
        assert!(!of_alice().lets_through(&reply));
    }

    #[test]
    fn total_is_known_only_for_all_tasks_of_an_owner() {
        assert_eq!(of_alice().only_owner().map(|owner| &**owner), Some("alice"));
        assert_eq!(ListFilter::default().only_owner(), None);
        for (narrow, _) in narrower() {
            assert_eq!(narrow.only_owner(), None, "{narrow:?}");
        }
    }
}
