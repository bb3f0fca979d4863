//! Limit for the running tasks of one owner, on all workers together. In this file, the owner of a task is its
//! principal and not its worker.
//!
//! The limit is the number of slots of an owner. Each slot is an entry with the id of a task and the id of the worker
//! that took the slot for this task. No worker releases a slot. Instead, a worker that needs a slot reads the task of
//! each slot, and checks whether the task still runs at the worker of the slot. Therefore no slot is lost if a worker
//! ends, and the state of a task is only in its log. The entries of an owner remain stored; their number is at most the
//! limit.

use allstop_core::{TaskId, WorkerId};
use serde::{Deserialize, Serialize};

use super::index::owner_prefix;
use super::lease::LeaseState;
use super::link::PutError;
use super::node::ClusterNode;
use crate::error::TaskStoreError;
use crate::manager::ManagerInner;
use crate::model::Task;
use crate::task_stream::read_task;

/// Maximum number of consecutive attempts to take a slot. An attempt fails if another worker writes the slot first.
/// After the last attempt, the task waits for its next wake-up.
const LOOKS_MAX: usize = 3;

const SLOT_PREFIX: &str = "slot/";

/// Value of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OwnerSlot {
    task: TaskId,
    /// The worker that runs the task, or will start it.
    worker: WorkerId,
}

/// True if another task may take the slot, according to the state of the task that has the slot.
fn is_left(
    slot: &OwnerSlot,
    task: Option<&Task>,
    lease_of: impl Fn(&WorkerId) -> LeaseState,
) -> bool {
    let Some(task) = task else {
        return false; // A slot is taken after the first record of its task, so this read is outdated.
    };
    if task.has_ended() {
        return true;
    }
    let has_ended = |worker| lease_of(worker).has_ended();
    // The slot belongs to the task, even if another worker wrote the slot last. If two workers race to start the task,
    // the worker that loses may be the last to write the slot.
    if task.is_executing
        && task
            .worker
            .as_ref()
            .is_some_and(|worker| !has_ended(worker))
    {
        return false;
    }
    has_ended(&slot.worker) || !(task.is_executing || task.awaits_execution)
}

impl ManagerInner {
    /// Takes a slot of the owner for a task that this worker will run. Returns false if other tasks have all slots.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may have taken a slot. The slot is free again after the task ends or runs at
    /// another worker.
    pub(super) async fn take_owner_slot(
        &self,
        node: &ClusterNode,
        me: &WorkerId,
        task: &Task,
    ) -> Result<bool, TaskStoreError> {
        let Some(max) = self.options.running_per_owner_max else {
            return Ok(true);
        };
        for _ in 0..LOOKS_MAX {
            if let Some(taken) = self.look_for_slot(node, me, task, max).await? {
                return Ok(taken);
            }
        }
        Ok(false)
    }

    /// Returns true if a slot was taken, and false if other tasks have all slots. `None` if another worker wrote the
    /// slot first. Both workers may need the slot for the same task, and a task never has two slots.
    async fn look_for_slot(
        &self,
        node: &ClusterNode,
        me: &WorkerId,
        task: &Task,
        max: usize,
    ) -> Result<Option<bool>, TaskStoreError> {
        let prefix = owner_prefix(SLOT_PREFIX, &task.owner);
        let entries = node.link().entries(&prefix).await?;
        let mine = OwnerSlot {
            task: task.id.clone(),
            worker: me.clone(),
        };
        let slots = (0..max).map(|number| {
            let key = format!("{prefix}{number}");
            let entry = entries.iter().find(|entry| *entry.key == *key);
            let slot = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
            (key, entry.map_or(0, |entry| entry.revision), slot)
        });
        let mut slots: Vec<(_, _, Option<OwnerSlot>)> = slots.collect();
        // A task never has two slots. Therefore the slot that the task already has comes first, even if its number is
        // not the lowest.
        slots.sort_by_key(|(_, _, slot)| slot.as_ref().is_none_or(|slot| slot.task != task.id));
        for (key, revision, slot) in slots {
            let is_free = match slot {
                Some(slot) if slot.task != task.id => {
                    match read_task(&*self.log, &slot.task).await {
                        Ok(read) => {
                            let holder = read.as_ref().map(|(_, task)| &**task);
                            is_left(&slot, holder, |worker| node.lease_state(worker))
                        }
                        // The record is damaged, or a later version wrote it. Then only the end of the worker's lease
                        // shows that the slot is free.
                        Err(TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. }) => {
                            node.lease_state(&slot.worker).has_ended()
                        }
                        Err(error) => return Err(error),
                    }
                }
                _ => true,
            };
            if !is_free {
                continue;
            }
            // A slot that the task already has is written again, because another worker may have read that the slot is
            // free. The write makes the write of that worker fail.
            let value = serde_json::to_vec(&mine).unwrap_or_default();
            match node.link().put(&key, value, Some(revision), None).await {
                Ok(_) => return Ok(Some(true)),
                Err(PutError::Conflict) => return Ok(None),
                Err(PutError::Unknown(error) | PutError::Failed(error)) => return Err(error.into()),
            }
        }
        Ok(Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::LeaseEnd;
    use super::*;
    use crate::model::test_tasks::{fold, started};

    fn slot_of(worker: &str) -> OwnerSlot {
        OwnerSlot {
            task: "t".into(),
            worker: WorkerId::new(worker),
        }
    }

    /// Creates a task that runs at this worker. With `None`, the task waits for a worker.
    fn task_at(worker: Option<&str>) -> Task {
        let started = worker.map(|worker| started(1, worker));
        fold(started.as_slice()).unwrap()
    }

    fn is_left_when(slot: &str, runs_at: Option<&str>, ended: &[&str]) -> bool {
        is_left(&slot_of(slot), Some(&task_at(runs_at)), |worker| {
            if ended.contains(&worker.as_str()) {
                LeaseState::Ended(LeaseEnd::Lost)
            } else {
                LeaseState::Absent
            }
        })
    }

    #[test]
    fn slot_of_a_running_task_is_kept() {
        assert!(!is_left_when("a", Some("a"), &[]));
        // Two workers raced to start the task. The loser wrote the slot last, and then ended.
        assert!(!is_left_when("b", Some("a"), &[]));
        assert!(!is_left_when("b", Some("a"), &["b"]));
    }

    #[test]
    fn slot_is_kept_until_a_take_over_has_begun() {
        assert!(!is_left_when("b", Some("a"), &["a"]));
        assert!(!is_left_when("a", None, &[]));
        assert!(is_left_when("a", None, &["a"]));
        assert!(is_left_when("a", Some("a"), &["a"]));
    }
}
