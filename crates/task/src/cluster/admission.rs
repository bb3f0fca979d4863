//! Limits of the tasks that a node accepts. The workers of the cluster run the tasks, so the node counts the tasks that
//! it has accepted, until it reads that they no longer run or wait.
//!
//! Invariants:
//! 1. A message is stored only after its task is counted. A task stays in the count while its message is being stored.
//! 2. The node refuses a message only after it has read the state of the counted tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::error::{ExecuteError, TaskStoreError};
use crate::options::{OWNER_WAITS, queue_share};

/// Minimum time between two reads of the counted tasks. Under an overload, messages wait for the next read, so the load
/// of the store does not grow with the number of refused messages.
const RECOUNT_EVERY: Duration = Duration::from_millis(250);

/// Maximum number of tasks that are read at the same time.
const READS_MAX: usize = 16;

/// Limits of the tasks that a node accepts. Each node counts the tasks that it has accepted, and the tasks that already
/// ran or waited in the cluster when it counted for the first time.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AdmissionLimits {
    /// Maximum number of tasks that run.
    pub running_max: Option<usize>,
    /// Maximum number of tasks of one owner that run.
    pub running_per_owner_max: Option<usize>,
    /// Maximum number of tasks that wait because of the other limits.
    pub waiting_max: usize,
}

/// Reads of tasks, as far as the count needs them.
pub(super) trait TaskReads: Sync {
    /// True if the task runs or waits, or if it cannot be read.
    fn needs_worker(&self, id: &TaskId) -> impl Future<Output = bool> + Send;

    /// The tasks of the cluster that run or wait, with their owners. The list may lack the latest changes.
    fn open_tasks(
        &self,
    ) -> impl Future<Output = Result<Vec<(TaskId, Arc<str>)>, TaskStoreError>> + Send;
}

/// Counted tasks.
#[derive(Debug)]
pub(super) struct TaskAdmission {
    limits: AdmissionLimits,
    tasks: Mutex<CountedTasks>,
    /// Permit to read the counted tasks.
    recount: Semaphore,
}

#[derive(Debug, Default)]
struct CountedTasks {
    tasks: HashMap<TaskId, CountedTask>,
    by_owner: HashMap<Arc<str>, usize>,
    /// Time of the last read; `None` before the first.
    read_at: Option<Instant>,
}

#[derive(Debug)]
struct CountedTask {
    owner: Arc<str>,
    /// Number of messages of the task that are being stored.
    storing: usize,
}

/// A counted task whose message is being stored. After the drop, the task is counted until the node reads that it no
/// longer runs or waits.
#[derive(Debug)]
#[must_use = "the task may be removed from the count when this value is dropped"]
pub(super) struct AdmittedTask<'a> {
    admission: &'a TaskAdmission,
    id: TaskId,
}

impl AdmissionLimits {
    /// Sets the maximum number of tasks that run.
    #[must_use]
    pub fn running_max(mut self, running_max: impl Into<Option<usize>>) -> Self {
        self.running_max = running_max.into();
        self
    }

    /// Sets the maximum number of tasks of one owner that run.
    #[must_use]
    pub fn running_per_owner_max(
        mut self,
        running_per_owner_max: impl Into<Option<usize>>,
    ) -> Self {
        self.running_per_owner_max = running_per_owner_max.into();
        self
    }

    /// Sets the maximum number of tasks that wait because of the other limits.
    #[must_use]
    pub fn waiting_max(mut self, waiting_max: usize) -> Self {
        self.waiting_max = waiting_max;
        self
    }

    /// The limit that a further task of this owner exceeds.
    fn exceeded(&self, by_owner: &HashMap<Arc<str>, usize>, owner: &str) -> Option<&'static str> {
        let per_owner = self.running_per_owner_max.unwrap_or(usize::MAX);
        let total: usize = by_owner.values().sum();
        let can_run: usize = by_owner.values().map(|count| (*count).min(per_owner)).sum();
        let running = can_run.min(self.running_max.unwrap_or(usize::MAX));
        let of_owner = by_owner.get(owner).copied().unwrap_or(0);
        let limit = if self.running_max.is_some_and(|max| running >= max) {
            "too many tasks run"
        } else if of_owner >= per_owner {
            "too many of your tasks run"
        } else {
            return None;
        };
        let waits = of_owner.saturating_sub(per_owner);
        match self.waiting_max {
            0 => Some(limit),
            max if total - running >= max => Some("too many tasks wait"),
            max if self.running_per_owner_max.is_some() && waits >= queue_share(max) => {
                Some(OWNER_WAITS)
            }
            _ => None,
        }
    }
}

impl CountedTasks {
    fn add(&mut self, id: &TaskId, owner: &Arc<str>, storing: usize) {
        let counted = self.tasks.entry(id.clone()).or_insert_with(|| {
            *self.by_owner.entry(Arc::clone(owner)).or_default() += 1;
            let owner = Arc::clone(owner);
            CountedTask { owner, storing: 0 }
        });
        counted.storing += storing;
    }

    /// Removes a task that no longer runs or waits, unless another message of the task is being stored.
    fn remove(&mut self, id: &TaskId) {
        if self.tasks.get(id).is_none_or(|task| task.storing > 0) {
            return;
        }
        let Some(task) = self.tasks.remove(id) else {
            return;
        };
        if let Some(count) = self.by_owner.get_mut(&task.owner) {
            *count -= 1;
            if *count == 0 {
                self.by_owner.remove(&task.owner);
            }
        }
    }
}

impl TaskAdmission {
    pub(super) fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits,
            tasks: Mutex::default(),
            recount: Semaphore::new(1),
        }
    }

    /// Counts a task whose message is about to be stored.
    ///
    /// # Errors
    /// If a limit is reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn admit(
        &self,
        reads: &impl TaskReads,
        id: &TaskId,
        owner: &Arc<str>,
    ) -> Result<AdmittedTask<'_>, ExecuteError> {
        let has_limit =
            self.limits.running_max.is_some() || self.limits.running_per_owner_max.is_some();
        if has_limit && self.tasks.lock().read_at.is_none() {
            self.recount(reads).await?;
        }
        if let Ok(admitted) = self.try_admit(id, owner) {
            return Ok(admitted);
        }
        self.recount(reads).await?;
        self.try_admit(id, owner).map_err(ExecuteError::Full)
    }

    fn try_admit(&self, id: &TaskId, owner: &Arc<str>) -> Result<AdmittedTask<'_>, &'static str> {
        let mut counted = self.tasks.lock();
        if !counted.tasks.contains_key(id)
            && let Some(limit) = self.limits.exceeded(&counted.by_owner, owner)
        {
            return Err(limit);
        }
        counted.add(id, owner, 1);
        Ok(AdmittedTask {
            admission: self,
            id: id.clone(),
        })
    }

    /// Reads the state of the counted tasks. Calls at the same time share one read.
    async fn recount(&self, reads: &impl TaskReads) -> Result<(), ExecuteError> {
        let asked_at = Instant::now();
        let permit = self.recount.acquire().await;
        let _permit = permit.expect("the semaphore is never closed");
        let read_at = self.tasks.lock().read_at;
        match read_at {
            Some(read_at) if read_at > asked_at => return Ok(()),
            Some(read_at) => sleep_until(read_at + RECOUNT_EVERY).await,
            None => {
                // An earlier process may have accepted tasks.
                let open = reads.open_tasks().await.map_err(ExecuteError::Store)?;
                let mut counted = self.tasks.lock();
                for (id, owner) in open {
                    counted.add(&id, &owner, 0);
                }
            }
        }
        let ids: Vec<TaskId> = self.tasks.lock().tasks.keys().cloned().collect();
        let began_at = Instant::now();
        let read = stream::iter(ids).map(async |id| {
            let needs_worker = reads.needs_worker(&id).await;
            (id, needs_worker)
        });
        let read: Vec<(TaskId, bool)> = read.buffer_unordered(READS_MAX).collect().await;
        let mut counted = self.tasks.lock();
        for (id, _) in read.iter().filter(|(_, needs_worker)| !needs_worker) {
            counted.remove(id);
        }
        counted.read_at = Some(began_at);
        Ok(())
    }
}

impl Drop for AdmittedTask<'_> {
    fn drop(&mut self) {
        let mut counted = self.admission.tasks.lock();
        if let Some(task) = counted.tasks.get_mut(&self.id) {
            task.storing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(running: usize, per_owner: usize, waiting: usize) -> AdmissionLimits {
        AdmissionLimits {
            running_max: Some(running),
            running_per_owner_max: Some(per_owner),
            waiting_max: waiting,
        }
    }

    fn exceeded(limits: &AdmissionLimits, counts: &[(&str, usize)]) -> Option<&'static str> {
        let counts = counts
            .iter()
            .map(|(owner, count)| ((*owner).into(), *count));
        limits.exceeded(&counts.collect(), "me")
    }

    #[test]
    fn a_task_is_refused_if_it_can_neither_run_nor_wait() {
        let strict = limits(3, 2, 0);
        assert_eq!(exceeded(&strict, &[("me", 1), ("you", 1)]), None);
        let own = Some("too many of your tasks run");
        assert_eq!(exceeded(&strict, &[("me", 2)]), own);
        let all = Some("too many tasks run");
        assert_eq!(exceeded(&strict, &[("me", 1), ("you", 2)]), all);

        let patient = limits(3, 2, 2);
        // One owner takes at most half of the queue.
        assert_eq!(exceeded(&patient, &[("me", 2)]), None);
        assert_eq!(exceeded(&patient, &[("me", 3)]), Some(OWNER_WAITS));
        let wait = Some("too many tasks wait");
        assert_eq!(exceeded(&patient, &[("me", 3), ("you", 3)]), wait);
        assert_eq!(exceeded(&patient, &[("me", 2), ("you", 3)]), wait);
        // The tasks of another owner wait, but this task can run.
        assert_eq!(exceeded(&patient, &[("you", 4)]), None);
    }

    #[test]
    fn a_task_stays_counted_while_its_message_is_stored() {
        let admission = TaskAdmission::new(limits(1, 1, 0));
        let (id, me) = (TaskId::new("t"), Arc::from("me"));
        let admitted = admission.try_admit(&id, &me).expect("nothing runs");
        admission.tasks.lock().remove(&id);
        assert!(admission.try_admit(&TaskId::new("u"), &me).is_err());
        drop(admitted);
        admission.tasks.lock().remove(&id);
        assert!(admission.try_admit(&TaskId::new("u"), &me).is_ok());
    }
}
