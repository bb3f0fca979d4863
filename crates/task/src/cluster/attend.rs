//! The next step of a worker for a task: a function decides the step without a runtime, and then the worker executes
//! it.
//!
//! A wake-up is a stored hint that a task may need a worker. The owner of a task is the worker that last started an
//! execution of the task. A lease is a promise of a worker to stop its work if it can no longer renew the lease.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{TaskId, WorkerId};
use allstop_log::Version;

use super::lease::LeaseState;
use super::node::ClusterNode;
use super::owner_question::{AttendReply, OwnerQuestion};
use crate::error::TaskStoreError;
use crate::execution::Execution;
use crate::manager::ManagerInner;
use crate::model::Task;
use crate::task_stream::read_task;

/// Pause before the next attempt if the duration of the obstacle is unknown.
pub(super) const ATTEND_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of consecutive reads of a task. After an attempt to end the owner's lease, the worker reads the task
/// again.
const LOOKS_MAX: u32 = 4;

/// Next step of a worker for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkerStep {
    /// The task needs no worker.
    Done,
    /// The record that the wake-up announces is not stored yet, and perhaps never will be.
    AwaitRecord,
    /// Claim the task. If the task has an execution in this process, ask that execution to read new records.
    Claim,
    /// The owner may no longer exist: end the lease of the owner first.
    EndLease { owner: WorkerId, revision: u64 },
    /// The owner has a lease: ask the owner to read the log of the task.
    Ask { owner: WorkerId, left: Duration },
}

/// Decides the next step for a task as it was read. The wake-up announces the record `awaited`. `me` is `None` for a node
/// that runs no executions.
pub(super) fn next_step(
    task: Option<&Task>,
    version: Version,
    awaited: Version,
    me: Option<&WorkerId>,
    lease_of: impl Fn(&WorkerId) -> LeaseState,
) -> WorkerStep {
    let needs_somebody = |task: &Task| {
        let is_open = task.is_executing || task.awaits_execution || task.stop_requested.is_some();
        is_open && !task.has_ended()
    };
    let Some(task) = task.filter(|task| needs_somebody(task)) else {
        let is_there = version >= awaited || task.is_some_and(Task::has_ended);
        return if is_there {
            WorkerStep::Done
        } else {
            WorkerStep::AwaitRecord
        };
    };
    let owner = match &task.worker {
        Some(owner) if Some(owner) != me => owner.clone(),
        _ => return WorkerStep::Claim,
    };
    match lease_of(&owner) {
        LeaseState::Ended(_) => WorkerStep::Claim,
        LeaseState::Absent => WorkerStep::EndLease { owner, revision: 0 },
        LeaseState::Overdue { revision } => WorkerStep::EndLease { owner, revision },
        LeaseState::Held { left } => WorkerStep::Ask { owner, left },
    }
}

/// Capacity of a worker for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimCapacity {
    /// A permit for one execution.
    Permit,
    /// No permit: the worker can only stop the task, or give it up as a dead letter.
    None,
}

/// Result of attending to a task.
#[derive(Debug)]
pub(super) enum StepResult {
    /// The task needs no worker. Contains the task, if the task exists.
    Done(Option<(Version, Arc<Task>)>),
    /// The task has an execution in this process.
    Here(Arc<Execution>),
    /// A worker should attend to the task again after this time.
    Later(Duration),
    /// The task should run, but this worker has no free permit.
    AwaitCapacity,
    /// The principal of the task has reached its limit of running tasks.
    AwaitSlot,
    /// The record that the wake-up announces is not stored.
    AwaitRecord,
    /// Too many worker processes ended during executions of the task.
    GiveUp(Version, Arc<Task>),
}

impl ManagerInner {
    /// Performs the next step of this worker for a task.
    pub(super) async fn attend(
        self: &Arc<Self>,
        node: &ClusterNode,
        id: &TaskId,
        awaited: Version,
        capacity: ClaimCapacity,
    ) -> Result<StepResult, TaskStoreError> {
        for _ in 0..LOOKS_MAX {
            let read = read_task(&*self.log, id).await?;
            let (version, task) = match &read {
                Some((version, task)) => (*version, Some(task)),
                None => (Version(0), None),
            };
            let me = node.worker();
            if me.is_none() && node.runs_executions() {
                break;
            }
            let lease_of = |worker: &WorkerId| node.lease_state(worker);
            let step = next_step(
                task.map(|task| &**task),
                version,
                awaited,
                me.as_ref(),
                lease_of,
            );
            match (step, task) {
                (WorkerStep::Done, _) => return Ok(StepResult::Done(read)),
                (WorkerStep::AwaitRecord, _) | (_, None) => return Ok(StepResult::AwaitRecord),
                (WorkerStep::Claim, Some(task)) => {
                    return self.claim(node, me, version, task, capacity).await;
                }
                (WorkerStep::EndLease { owner, revision }, _) => {
                    let has_ended = node.end_lease(&owner, revision).await?;
                    if has_ended {
                        tracing::info!(%owner, task = %id, "a worker no longer renews its lease: other workers take over its tasks");
                    }
                }
                (WorkerStep::Ask { owner, left }, Some(task)) => {
                    let question = OwnerQuestion::Attend {
                        task: id.clone(),
                        stop: None,
                    };
                    let answer: Option<AttendReply> = node.ask(&owner, &question).await?;
                    return match answer {
                        Some(AttendReply::Observed | AttendReply::Runs) if task.is_executing => {
                            Ok(StepResult::Later(left))
                        }
                        // The owner answered that it runs nothing of the task, so this worker may claim the task. If
                        // several workers claim it, the first append wins. A missing answer would not prove that the
                        // owner runs nothing.
                        Some(AttendReply::Nothing) if !task.is_executing => {
                            self.claim(node, me, version, task, capacity).await
                        }
                        _ => Ok(StepResult::Later(left.min(ATTEND_PAUSE))),
                    };
                }
            }
        }
        Ok(StepResult::Later(ATTEND_PAUSE))
    }

    async fn claim(
        self: &Arc<Self>,
        node: &ClusterNode,
        me: Option<WorkerId>,
        version: Version,
        task: &Arc<Task>,
        capacity: ClaimCapacity,
    ) -> Result<StepResult, TaskStoreError> {
        if let Some(execution) = self.execution_here(&task.id) {
            execution.ask_to_look();
            return Ok(StepResult::Here(execution));
        }
        if task.is_executing && task.take_overs >= node.options.take_overs_max {
            return Ok(StepResult::GiveUp(version, Arc::clone(task)));
        }
        // A task that must only be stopped needs no permit and no slot.
        if task.stop_requested.is_none() {
            let Some(me) = me.as_ref().filter(|_| capacity == ClaimCapacity::Permit) else {
                return Ok(StepResult::AwaitCapacity);
            };
            if !self.take_owner_slot(node, me, task).await? {
                return Ok(StepResult::AwaitSlot);
            }
        }
        Ok(match self.take(version, task, me) {
            Some(execution) => StepResult::Here(execution),
            None => StepResult::Later(ATTEND_PAUSE),
        })
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::{Cause, CauseKind};

    use super::super::lease::LeaseEnd;
    use super::*;
    use crate::model::TaskRecord;
    use crate::model::test_tasks::{at, rested, started, task_of};

    fn me() -> WorkerId {
        WorkerId::new("me")
    }

    fn stop() -> TaskRecord {
        TaskRecord::StopRequested {
            cause: Cause::new(CauseKind::User),
            at: at(),
        }
    }

    fn step(task: &Task, lease: LeaseState) -> WorkerStep {
        next_step(Some(task), Version(9), Version(1), Some(&me()), |_| lease)
    }

    const LOST: LeaseState = LeaseState::Ended(LeaseEnd::Lost);

    const HELD: LeaseState = LeaseState::Held {
        left: Duration::from_secs(3),
    };

    #[test]
    fn unowned_task_is_claimed() {
        assert_eq!(step(&task_of([]), LeaseState::Absent), WorkerStep::Claim);
    }

    #[test]
    fn resting_task_needs_a_worker_only_for_a_stop() {
        let task = task_of([started(1, "other"), rested()]);
        assert_eq!(step(&task, LOST), WorkerStep::Done);
        let task = task_of([started(1, "other"), rested(), stop()]);
        assert_eq!(step(&task, LOST), WorkerStep::Claim);
        assert!(matches!(step(&task, HELD), WorkerStep::Ask { .. }));
    }

    #[test]
    fn wake_up_waits_for_its_record() {
        let task = task_of([started(1, "other"), rested()]);
        let early = next_step(Some(&task), Version(3), Version(4), Some(&me()), |_| HELD);
        assert_eq!(early, WorkerStep::AwaitRecord);
        let none = next_step(None, Version(0), Version(1), Some(&me()), |_| HELD);
        assert_eq!(none, WorkerStep::AwaitRecord);
    }

    #[test]
    fn running_task_moves_only_after_its_owners_lease_ends() {
        let task = task_of([started(1, "other")]);
        assert!(matches!(step(&task, HELD), WorkerStep::Ask { .. }));
        assert_eq!(step(&task, LOST), WorkerStep::Claim);
        let owner = WorkerId::new("other");
        assert_eq!(
            step(&task, LeaseState::Overdue { revision: 4 }),
            WorkerStep::EndLease {
                owner: owner.clone(),
                revision: 4
            }
        );
        assert_eq!(
            step(&task, LeaseState::Absent),
            WorkerStep::EndLease { owner, revision: 0 }
        );
    }

    #[test]
    fn own_task_that_does_not_run_is_claimed_again() {
        assert_eq!(step(&task_of([started(1, "me")]), HELD), WorkerStep::Claim);
    }
}
