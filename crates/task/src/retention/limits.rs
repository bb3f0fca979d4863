//! Limits of the ended tasks that stay, and the decision about each task, without a runtime.

use std::time::Duration;

use allstop_core::Timestamp;

use crate::manager::TaskSummary;

/// Minimum time that an ended task stays although too many tasks have ended. A client that polls its task must see the
/// end.
const VISIBLE_MIN: Duration = Duration::from_mins(1);

/// Bounds of the time between two passes that depends on the maximum age.
const AGE_PASS_MIN: Duration = Duration::from_secs(1);
const AGE_PASS_MAX: Duration = Duration::from_hours(1);

/// Limits of the ended tasks that stay. Without a limit, every task stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionLimits {
    /// Maximum time since the end of a task.
    pub age_max: Option<Duration>,
    /// Maximum number of ended tasks, of all owners together. The tasks that ended first are removed first, but none
    /// within a minute after its end.
    pub ended_max: Option<usize>,
}

impl RetentionLimits {
    /// Sets the maximum time since the end of a task.
    #[must_use]
    pub fn age_max(mut self, age_max: impl Into<Option<Duration>>) -> Self {
        self.age_max = age_max.into();
        self
    }

    /// Sets the maximum number of ended tasks, of all owners together.
    #[must_use]
    pub fn ended_max(mut self, ended_max: impl Into<Option<usize>>) -> Self {
        self.ended_max = ended_max.into();
        self
    }

    /// True if tasks may have to be removed.
    pub fn are_set(&self) -> bool {
        self.age_max.is_some() || self.ended_max.is_some()
    }

    /// Time between two passes. A task is therefore removed at most a tenth of the maximum age too late. `count_every`
    /// is the time between two checks of the number of tasks.
    pub(crate) fn pass_every(&self, count_every: Duration) -> Duration {
        let by_age = self
            .age_max
            .map(|max| (max / 10).clamp(AGE_PASS_MIN, AGE_PASS_MAX));
        let by_count = self.ended_max.map(|_| count_every);
        let times = by_age.into_iter().chain(by_count);
        times.min().unwrap_or(AGE_PASS_MAX)
    }
}

/// Decides about tasks, from the newest change to the oldest.
#[derive(Debug)]
pub(crate) struct ExpiryScan {
    limits: RetentionLimits,
    now: Timestamp,
    /// Number of ended tasks so far.
    ended: usize,
}

impl ExpiryScan {
    pub(crate) fn new(limits: RetentionLimits, now: Timestamp) -> Self {
        Self {
            limits,
            now,
            ended: 0,
        }
    }

    /// True if the task is beyond a limit.
    pub(crate) fn is_expired(&mut self, task: &TaskSummary) -> bool {
        if !task.has_ended() || task.is_executing {
            return false;
        }
        self.ended += 1;
        // A clock that was set back makes no task old.
        let age = self.now.unix_ms().saturating_sub(task.updated_at.unix_ms());
        let age = Duration::from_millis(u64::try_from(age).unwrap_or_default());
        let is_old = self.limits.age_max.is_some_and(|max| age > max);
        let is_excess = self.limits.ended_max.is_some_and(|max| self.ended > max);
        is_old || is_excess && age > VISIBLE_MIN
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::{ContextId, TaskId};

    use super::*;
    use crate::model::TaskState;

    const NOW_MS: i64 = 1_000_000_000;

    fn task(state: TaskState, age: Duration) -> TaskSummary {
        let age = i64::try_from(age.as_millis()).unwrap();
        TaskSummary {
            id: TaskId::new("t"),
            context_id: ContextId::new("c"),
            owner: "alice".into(),
            state,
            is_executing: false,
            is_reply: false,
            updated_at: Timestamp::from_unix_ms(NOW_MS - age),
        }
    }

    fn scan(age_max: Option<Duration>, ended_max: Option<usize>) -> ExpiryScan {
        let limits = RetentionLimits { age_max, ended_max };
        ExpiryScan::new(limits, Timestamp::from_unix_ms(NOW_MS))
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn ended_task_expires_after_the_maximum_age() {
        let mut scan = scan(Some(HOUR), None);
        for state in [
            TaskState::Completed,
            TaskState::Failed,
            TaskState::Canceled,
            TaskState::Rejected,
        ] {
            assert!(!scan.is_expired(&task(state, HOUR)), "{state}");
            assert!(scan.is_expired(&task(state, HOUR + Duration::from_millis(1))));
        }
        let reply = TaskSummary {
            is_reply: true,
            ..task(TaskState::Submitted, 2 * HOUR)
        };
        assert!(scan.is_expired(&reply));
    }

    #[test]
    fn task_without_an_end_never_expires() {
        let mut scan = scan(Some(Duration::ZERO), Some(0));
        for state in [
            TaskState::Submitted,
            TaskState::Working,
            TaskState::InputRequired,
            TaskState::AuthRequired,
        ] {
            assert!(!scan.is_expired(&task(state, 1_000 * HOUR)), "{state}");
        }
        let executing = TaskSummary {
            is_executing: true,
            ..task(TaskState::Completed, 1_000 * HOUR)
        };
        assert!(!scan.is_expired(&executing));
    }

    #[test]
    fn count_keeps_the_newest_ended_tasks() {
        let mut scan = scan(None, Some(2));
        let expired = [
            (TaskState::Completed, false),
            (TaskState::Working, false),
            (TaskState::Failed, false),
            (TaskState::InputRequired, false),
            (TaskState::Completed, true),
            (TaskState::Canceled, true),
        ];
        for (minutes, (state, is_expired)) in (2..).zip(expired) {
            let age = Duration::from_mins(minutes);
            assert_eq!(scan.is_expired(&task(state, age)), is_expired, "{minutes}");
        }
    }

    #[test]
    fn task_that_has_just_ended_stays_visible() {
        let mut scan = scan(None, Some(0));
        assert!(!scan.is_expired(&task(TaskState::Completed, VISIBLE_MIN)));
        let later = VISIBLE_MIN + Duration::from_millis(1);
        assert!(scan.is_expired(&task(TaskState::Completed, later)));
    }

    #[test]
    fn clock_that_was_set_back_removes_nothing() {
        let mut scan = scan(Some(Duration::ZERO), Some(0));
        let mut early = task(TaskState::Completed, HOUR);
        early.updated_at = Timestamp::from_unix_ms(NOW_MS + 1);
        assert!(!scan.is_expired(&early));
        early.updated_at = Timestamp::from_unix_ms(i64::MAX);
        assert!(!scan.is_expired(&early));
    }

    #[test]
    fn passes_follow_the_age_and_the_count() {
        let every = |age_max, ended_max| {
            let limits = RetentionLimits { age_max, ended_max };
            limits.pass_every(Duration::from_mins(1))
        };
        assert_eq!(every(Some(Duration::from_secs(20)), None).as_secs(), 2);
        assert_eq!(every(Some(Duration::ZERO), None), AGE_PASS_MIN);
        assert_eq!(every(Some(1_000 * HOUR), None), AGE_PASS_MAX);
        assert_eq!(every(None, Some(3)).as_secs(), 60);
        assert_eq!(every(Some(1_000 * HOUR), Some(3)).as_secs(), 60);
    }
}
