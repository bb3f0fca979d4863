//! Limit of the tasks of one owner that run at the same time, on all workers together.
//!
//! An owner has as many slots as the limit, each an entry that names a task and the worker that took the slot for it. A
//! slot is never given back: whoever needs one reads whether the task of a slot still runs at its worker. So a slot
//! cannot be lost with a worker, and the log stays the only truth about a task. The entries of an owner stay, at most as
//! many as the limit.

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

const SLOT_PREFIX: &str = "slot/";

/// Value of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OwnerSlot {
    task: TaskId,
    /// The worker that runs the task, or is about to.
    worker: WorkerId,
}

/// True if the task of a slot, as it was read, leaves the slot to others.
fn is_left(
    slot: &OwnerSlot,
    task: Option<&Task>,
    lease_of: impl Fn(&WorkerId) -> LeaseState,
) -> bool {
    let Some(task) = task else {
        return false; // A slot is taken behind the record of its task; this answer is older.
    };
    let has_ended = |worker| lease_of(worker) == LeaseState::Ended;
    if task.has_ended() || has_ended(&slot.worker) {
        return true;
    }
    match &task.worker {
        // If the lease of that worker has ended, the one of the slot is about to take over.
        Some(worker) if task.is_executing && *worker != slot.worker => !has_ended(worker),
        _ => !(task.is_executing || task.awaits_execution),
    }
}

impl ManagerInner {
    /// Takes a slot of the owner for a task that this worker is about to run. False: others have all of them.
    ///
    /// # Cancel safety
    /// A dropped future may have taken a slot, which is left as soon as the task ends or runs at another worker.
    pub(super) async fn take_owner_slot(
        &self,
        node: &ClusterNode,
        me: &WorkerId,
        task: &Task,
    ) -> Result<bool, TaskStoreError> {
        let Some(max) = self.options.running_per_owner_max else {
            return Ok(true);
        };
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
        // One task never has two: its own slot comes first, wherever it is.
        slots.sort_by_key(|(_, _, slot)| slot.as_ref().is_none_or(|slot| slot.task != task.id));
        for (key, revision, slot) in slots {
            let is_free = match slot {
                Some(slot) if slot.task != task.id => {
                    let read = read_task(&*self.log, &slot.task).await?;
                    let holder = read.as_ref().map(|(_, task)| &**task);
                    is_left(&slot, holder, |worker| node.lease_state(worker))
                }
                _ => true,
            };
            if !is_free {
                continue;
            }
            // Its own slot is written again, too: somebody may just be reading that it is left.
            let value = serde_json::to_vec(&mine).unwrap_or_default();
            match node.link().put(&key, value, Some(revision), None).await {
                Ok(_) => return Ok(true),
                Err(PutError::Conflict) => {}
                Err(PutError::Unknown(error) | PutError::Failed(error)) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}
