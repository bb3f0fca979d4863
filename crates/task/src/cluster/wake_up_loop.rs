//! The loop that handles wake-ups. A wake-up is a stored hint that a task may need a worker. Only one worker at a time
//! holds a wake-up. The worker attends to the task, and then removes or returns the wake-up.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_core::receipt::ItemKind;
use allstop_log::{LogError, Version};
use allstop_scope::WorkSpec;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::attend::{ATTEND_PAUSE, ClaimCapacity, StepResult};
use super::dead_letter::DeadLetter;
use super::link::HeldWakeUp;
use super::node::{ClusterNode, RETRY_EVERY};
use super::wake_up::WakeUp;
use crate::error::TaskStoreError;
use crate::execution::ExecutionResult;
use crate::manager::ManagerInner;

/// Time after which a wake-up is delivered again if this version cannot read its task.
const UNREADABLE_PAUSE: Duration = Duration::from_mins(1);

/// Longest pause before the next delivery of a wake-up whose record is missing. The pause starts at 10 ms and doubles
/// each time. The wake-up is removed when two conditions are met: it was delivered `RECORD_DELIVERIES_MAX` times, and
/// the hours of [`WakeUp::awaits_record`] are over. After that time, the record can no longer arrive.
const RECORD_PAUSE_MAX: Duration = Duration::from_mins(1);
const RECORD_DELIVERIES_MAX: u64 = 200;

/// Interval in which a worker without a free permit for an execution checks for a wake-up that no other worker takes. A
/// task can be stopped or given up without a permit, and all workers may be busy for hours.
const CHECK_WITHOUT_PERMIT: Duration = Duration::from_millis(500);

/// Time after which a wake-up is delivered again if this worker has no free permit. The time is short, because another
/// worker may have a free permit.
const PERMIT_PAUSE: Duration = Duration::from_millis(250);

/// Half of the first pause before a wake-up is delivered again if the owner of its task has no free slot. The slots of
/// an owner limit the owner's running tasks. The longest pause is 64 times as long as this constant.
const SLOT_PAUSE_MIN: Duration = Duration::from_millis(125);

impl ManagerInner {
    /// Takes wake-ups. Each wake-up occupies a permit for an execution. A worker without a free permit only checks,
    /// from time to time, for a wake-up that no other worker takes.
    pub(super) async fn take_wake_ups(self: &Arc<Self>, node: &Arc<ClusterNode>) {
        let permits = Arc::new(Semaphore::new(node.options.concurrency));
        let mut is_closing = node.is_closing.subscribe();
        loop {
            let permit = tokio::select! {
                biased;
                permit = Arc::clone(&permits).acquire_owned() => permit.ok(),
                () = sleep(CHECK_WITHOUT_PERMIT) => None,
            };
            if *is_closing.borrow() || self.occupancy().1 {
                return;
            }
            if node.runs_executions() && node.worker().is_none() {
                sleep(RETRY_EVERY).await;
                continue;
            }
            let next = tokio::select! {
                biased;
                _closing = is_closing.wait_for(|is| *is) => return,
                () = self.draining() => return,
                next = next_wake_up(node, permit.is_some()) => next,
            };
            let held = match next {
                Ok(Some(held)) => held,
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "no wake-up can be read");
                    sleep(RETRY_EVERY).await;
                    continue;
                }
            };
            let (manager, own) = (Arc::clone(self), Arc::clone(node));
            // A permit may have become free during the wait for a wake-up.
            let permit = permit.or_else(|| Arc::clone(&permits).try_acquire_owned().ok());
            let capacity = match permit {
                Some(_) => ClaimCapacity::Permit,
                None => ClaimCapacity::None,
            };
            let spec = WorkSpec::new(ItemKind::Future, "wake-up");
            let handled = node.scope.spawn(spec, move |cx| async move {
                tokio::select! {
                    _stopped = cx.stopped_at("wake-up") => {}
                    () = manager.handle(&own, &*held, capacity) => {}
                }
                drop(permit);
            });
            if handled.is_err() {
                return;
            }
        }
    }

    /// Attends to the task of a wake-up, and removes the wake-up when the task needs no worker.
    async fn handle(
        self: &Arc<Self>,
        node: &ClusterNode,
        held: &dyn HeldWakeUp,
        capacity: ClaimCapacity,
    ) {
        let Some(wake_up) = WakeUp::from_bytes(held.payload()) else {
            let text: String = String::from_utf8_lossy(held.payload())
                .chars()
                .take(64)
                .collect();
            let name = TaskId::new(text);
            let aside = self.set_aside(node, &name, "a wake-up that cannot be read");
            return settle(held, aside.await).await;
        };
        loop {
            let attending = self.attend(node, &wake_up.task, Version(wake_up.version), capacity);
            let attention = match while_held(held, attending).await {
                Ok(attention) => attention,
                Err(
                    error @ (TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. }),
                ) => {
                    let reason = error.to_string();
                    if let Err(error) = self.set_aside(node, &wake_up.task, &reason).await {
                        tracing::debug!(%error, "a dead letter is written later");
                    }
                    // A worker with a newer version may be able to read the task.
                    return give_back(held, UNREADABLE_PAUSE).await;
                }
                Err(error) => {
                    tracing::debug!(%error, task = %wake_up.task, "a task is looked at later");
                    return give_back(held, ATTEND_PAUSE).await;
                }
            };
            match attention {
                StepResult::Done(task) => {
                    let indexed = match &task {
                        Some((version, task)) => node.index_now(*version, task).await,
                        None => Ok(()),
                    };
                    return settle(held, indexed).await;
                }
                StepResult::Later(pause) => return give_back(held, pause).await,
                StepResult::AwaitCapacity => return give_back(held, PERMIT_PAUSE).await,
                StepResult::AwaitSlot => {
                    return give_back(held, slot_pause(held.deliveries())).await;
                }
                StepResult::AwaitRecord => {
                    let is_late = held.deliveries() >= RECORD_DELIVERIES_MAX;
                    if is_late && !wake_up.awaits_record(self.now()) {
                        return settle(held, Ok(())).await;
                    }
                    return give_back(held, record_pause(held.deliveries())).await;
                }
                StepResult::Here(execution) => {
                    let permit = execution.await_release();
                    if permit.is_none() && !execution.is_ending() {
                        // Another wake-up of this task already waits for the execution, so this wake-up needs no
                        // permit.
                        return give_back(held, ATTEND_PAUSE).await;
                    }
                    while_held(held, execution.released()).await;
                    let result = execution.present_result();
                    if !matches!(result, Some(ExecutionResult::Ended(_))) {
                        // The end of the task is not stored, and the reason may persist.
                        return give_back(held, ATTEND_PAUSE).await;
                    }
                }
                StepResult::GiveUp(version, task) => {
                    if let Err(error) = self.give_up(node, version, &task).await {
                        tracing::debug!(%error, task = %task.id, "a dead letter is written later");
                        return give_back(held, ATTEND_PAUSE).await;
                    }
                }
            }
        }
    }

    async fn set_aside(
        &self,
        node: &ClusterNode,
        task: &TaskId,
        reason: &str,
    ) -> Result<(), LogError> {
        tracing::warn!(%task, reason, "a task was set aside as a dead letter");
        let letter = DeadLetter {
            task: task.clone(),
            owner: None,
            reason: reason.into(),
            at: self.now(),
            again_as: None,
        };
        node.set_aside(&letter).await
    }
}

/// Takes the next wake-up if the worker has a permit. A worker without a permit gets only a wake-up that no other
/// worker takes.
async fn next_wake_up(
    node: &ClusterNode,
    has_permit: bool,
) -> Result<Option<Box<dyn HeldWakeUp>>, LogError> {
    if has_permit {
        node.options.wake_ups.next_wake_up().await.map(Some)
    } else {
        node.options.wake_ups.waiting_wake_up().await
    }
}

/// Pause after this delivery of a wake-up whose record is missing.
fn record_pause(delivery: u64) -> Duration {
    let doublings = u32::try_from(delivery.min(16)).unwrap_or_default();
    let pause = Duration::from_millis(5) * 2_u32.pow(doublings);
    pause.min(RECORD_PAUSE_MAX)
}

/// Pause after this delivery of a wake-up if the owner of its task has no free slot. The pause grows with the number of
/// deliveries, so that many waiting wake-ups cost little.
fn slot_pause(delivery: u64) -> Duration {
    let doublings = u32::try_from(delivery.min(6)).unwrap_or_default();
    SLOT_PAUSE_MIN * 2_u32.pow(doublings)
}

/// Runs the work and holds the wake-up in the meantime.
async fn while_held<T>(held: &dyn HeldWakeUp, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(held.hold_every()) => {
                if let Err(error) = held.hold().await {
                    tracing::debug!(%error, "a wake-up may come to others");
                }
            }
        }
    }
}

/// Removes a wake-up if `done` is a success.
async fn settle(held: &dyn HeldWakeUp, done: Result<(), LogError>) {
    let taken = match done {
        Ok(()) => held.remove().await,
        Err(error) => Err(error),
    };
    if let Err(error) = taken {
        tracing::debug!(%error, "a wake-up comes again");
    }
}

async fn give_back(held: &dyn HeldWakeUp, pause: Duration) {
    if let Err(error) = held.release_after(pause).await {
        tracing::debug!(%error, "a wake-up comes again when it is held no longer");
    }
}
