//! Lifecycle of one execution: decisions without a runtime.
//!
//! Invariants:
//! 1. An execution has exactly one end. Events have no effect after the end is decided.
//! 2. A stop competes with an end by the executor for one decision ([`CommitDecision`]). The first of the two wins.
//! 3. The end of a stopped execution contains the receipt of the stop. If the executor ends the task by itself within
//!    the grace (the time before the stop uses force), the end has the state from the executor. If this end is the stop
//!    of another system, it also has the cause of that stop, and its receipt contains the items of both stops.

use std::sync::Arc;

use allstop_core::decision::{CommitDecision, CommitVerdict};
use allstop_core::{Cause, CauseKind, Receipt, Timestamp};

use crate::executor::ExecutorError;
use crate::model::{
    JsonMap, StatusUpdate, StoppedWork, TaskEnding, TaskEvent, TaskRecord, TaskState, TaskStatus,
};

/// Progress of one execution towards its end.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    decision: Arc<CommitDecision>,
    phase: LifecyclePhase,
}

#[derive(Debug)]
enum LifecyclePhase {
    Running,
    Stopping {
        cause: Cause,
        /// Terminal event that the executor wrote before the receipt was complete.
        own_end: Option<TaskEvent>,
        /// True if an event was lost. In this case the terminal event of the executor has no effect.
        is_incomplete: bool,
        /// Failure of the executor after the stop.
        error: Option<Arc<str>>,
    },
    Decided,
}

/// Event of an execution.
#[derive(Debug)]
pub(crate) enum LifecycleEvent {
    /// The executor or the canceler wrote an event.
    Wrote(TaskEvent),
    /// The code of the executor has ended, so no more events can follow.
    Silent(ExecutorEnd),
    /// A processor, the factory or the store failed. The task fails with this reason.
    Failed(Arc<str>),
    /// A stop was accepted.
    Stopped(Cause),
    /// The receipt of the stop is complete.
    Accounted(Arc<Receipt>),
}

/// End of an executor's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExecutorEnd {
    /// The executor returned, and all its event writers are dropped.
    Returned,
    /// The executor returned an error. If the execution was taken over from another worker, the second value is the
    /// number of the lost execution.
    Failed(ExecutorError, Option<u64>),
    /// The executor panicked.
    Panicked,
    /// The future of the executor was dropped: a stop used force, or the runtime ended.
    Dropped,
}

/// Effect of an event.
#[derive(Debug, PartialEq)]
pub(crate) enum LifecycleEffect {
    /// No effect.
    None,
    /// Append the record; the execution continues.
    Append(TaskRecord),
    /// Append the record as the end of the execution.
    End(TaskRecord),
}

impl ExecutorEnd {
    /// Creates the end of a task whose executor returned, failed or was dropped before any event ended the task.
    fn failure(&self, at: Timestamp) -> TaskRecord {
        let reason = match self {
            Self::Returned => "the executor returned without ending the task".into(),
            Self::Failed(error, taken_over) if error.is_crash() => {
                return crashed(Arc::clone(error.message()), *taken_over, at);
            }
            Self::Failed(error, _) => Arc::clone(error.message()),
            Self::Panicked => "the executor panicked".into(),
            Self::Dropped => "the executor was dropped".into(),
        };
        failure(reason, at)
    }
}

impl Lifecycle {
    pub(crate) fn new(decision: Arc<CommitDecision>) -> Self {
        Self {
            decision,
            phase: LifecyclePhase::Running,
        }
    }

    /// Handles the next event, at this time.
    pub(crate) fn handle(&mut self, event: LifecycleEvent, at: Timestamp) -> LifecycleEffect {
        match (&mut self.phase, event) {
            // The end is decided, or the executor has written its end and only the receipt is missing: the event has no
            // effect.
            (LifecyclePhase::Decided, _)
            | (
                LifecyclePhase::Stopping {
                    own_end: Some(_), ..
                },
                LifecycleEvent::Wrote(_),
            ) => LifecycleEffect::None,
            (_, LifecycleEvent::Wrote(event)) if !event.ends_execution() => {
                LifecycleEffect::Append(record_of(event, at))
            }
            (LifecyclePhase::Running, LifecycleEvent::Wrote(event)) => {
                if self.decide_end() {
                    return LifecycleEffect::End(record_of(event, at));
                }
                self.handle(LifecycleEvent::Wrote(event), at)
            }
            (LifecyclePhase::Running, LifecycleEvent::Silent(end)) => {
                if self.decide_end() {
                    return LifecycleEffect::End(end.failure(at));
                }
                self.handle(LifecycleEvent::Silent(end), at)
            }
            (LifecyclePhase::Running, LifecycleEvent::Failed(reason)) => {
                if self.decide_end() {
                    return LifecycleEffect::End(failure(reason, at));
                }
                self.handle(LifecycleEvent::Failed(reason), at)
            }
            (LifecyclePhase::Running, LifecycleEvent::Stopped(cause)) => {
                self.phase = LifecyclePhase::stopping(cause);
                LifecycleEffect::None
            }
            (LifecyclePhase::Stopping { own_end, .. }, LifecycleEvent::Wrote(event)) => {
                // A stopped task cannot enter a state in which it waits for input.
                if own_end.is_none() && !is_input_required(&event) {
                    *own_end = Some(event);
                }
                LifecycleEffect::None
            }
            (
                LifecyclePhase::Stopping { error, .. },
                LifecycleEvent::Silent(ExecutorEnd::Failed(failed, _)),
            ) => {
                error.get_or_insert(Arc::clone(failed.message()));
                LifecycleEffect::None
            }
            (
                LifecyclePhase::Stopping {
                    error,
                    is_incomplete,
                    ..
                },
                LifecycleEvent::Failed(reason),
            ) => {
                *is_incomplete = true;
                error.get_or_insert(reason);
                LifecycleEffect::None
            }
            (LifecyclePhase::Stopping { .. }, LifecycleEvent::Accounted(receipt)) => {
                self.end_stopped(receipt, at)
            }
            (LifecyclePhase::Stopping { .. }, _)
            | (LifecyclePhase::Running, LifecycleEvent::Accounted(_)) => LifecycleEffect::None,
        }
    }

    /// True if the execution is being stopped, and its end is not decided.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self.phase, LifecyclePhase::Stopping { .. })
    }

    /// Tries to decide that the executor ends the execution. Returns false if a stop was accepted before.
    fn decide_end(&mut self) -> bool {
        self.phase = match self.decision.commit() {
            Ok(_permit) => LifecyclePhase::Decided,
            Err(CommitVerdict::Stop(cause)) => LifecyclePhase::stopping(cause),
            Err(CommitVerdict::Commit) => LifecyclePhase::Decided,
        };
        matches!(self.phase, LifecyclePhase::Decided)
    }

    fn end_stopped(&mut self, receipt: Arc<Receipt>, at: Timestamp) -> LifecycleEffect {
        let phase = std::mem::replace(&mut self.phase, LifecyclePhase::Decided);
        let LifecyclePhase::Stopping {
            cause,
            own_end,
            is_incomplete,
            error,
        } = phase
        else {
            return LifecycleEffect::None;
        };
        let first = match &own_end {
            Some(TaskEvent::Stopped(work)) => Some(Arc::clone(&work.receipt)),
            _ => None,
        };
        let mut record = match own_end.filter(|_| !is_incomplete) {
            Some(event) => record_of(event, at),
            None => ended(TaskState::after_stop(cause.kind), None, JsonMap::new(), at),
        };
        if let TaskRecord::TaskEnded { status, ending, .. } = &mut record {
            // Set if another system has stopped the work.
            let own = std::mem::take(ending);
            let request = own.receipt.as_ref().unwrap_or(&receipt).request().clone();
            let receipt = match first {
                Some(first) => Arc::new(Receipt::merge_parts(request, &[first, receipt])),
                None => receipt,
            };
            let is_completed = status.state == TaskState::Completed;
            *ending = TaskEnding {
                cause: own.cause.or((!is_completed).then_some(cause)),
                error: own.error.or(error),
                receipt: Some(receipt),
                lost_execution: None,
            };
        }
        LifecycleEffect::End(record)
    }
}

impl LifecyclePhase {
    fn stopping(cause: Cause) -> Self {
        Self::Stopping {
            cause,
            own_end: None,
            is_incomplete: false,
            error: None,
        }
    }
}

fn is_input_required(event: &TaskEvent) -> bool {
    matches!(event, TaskEvent::Status(update) if update.state == TaskState::InputRequired)
}

/// Creates the record of an event.
fn record_of(event: TaskEvent, at: Timestamp) -> TaskRecord {
    match event {
        TaskEvent::Status(StatusUpdate {
            state,
            message,
            metadata,
        }) if state.is_terminal() => ended(state, message, metadata, at),
        TaskEvent::Status(StatusUpdate {
            state,
            message,
            metadata,
        }) => TaskRecord::StatusChanged {
            status: TaskStatus { state, message, at },
            metadata,
        },
        TaskEvent::Artifact(update) => TaskRecord::ArtifactUpdated { update, at },
        TaskEvent::Reply(message) => TaskRecord::Replied { message, at },
        TaskEvent::Stopped(StoppedWork {
            receipt,
            message,
            error,
        }) => TaskRecord::TaskEnded {
            status: TaskStatus {
                state: TaskState::after_stop(receipt.cause().kind),
                message,
                at,
            },
            metadata: JsonMap::new(),
            ending: TaskEnding {
                cause: Some(receipt.cause().clone()),
                error,
                receipt: Some(receipt),
                lost_execution: None,
            },
        },
    }
}

fn ended(
    state: TaskState,
    message: Option<Arc<crate::model::TaskMessage>>,
    metadata: JsonMap,
    at: Timestamp,
) -> TaskRecord {
    TaskRecord::TaskEnded {
        status: TaskStatus { state, message, at },
        metadata,
        ending: TaskEnding::default(),
    }
}

fn failure(reason: Arc<str>, at: Timestamp) -> TaskRecord {
    failed(Cause::new(CauseKind::Failure), reason, at)
}

/// Creates the end of a task that failed with this cause.
pub(crate) fn failed(cause: Cause, error: Arc<str>, at: Timestamp) -> TaskRecord {
    let mut record = ended(TaskState::Failed, None, JsonMap::new(), at);
    if let TaskRecord::TaskEnded { ending, .. } = &mut record {
        ending.cause = Some(cause);
        ending.error = Some(error);
    }
    record
}

/// Creates the end of a task whose work ended because an earlier process ended. `lost_execution` is the number of the
/// execution of a lost worker.
pub(crate) fn crashed(error: Arc<str>, lost_execution: Option<u64>, at: Timestamp) -> TaskRecord {
    let crash = Cause::new(CauseKind::Failure).detail("crash");
    let mut record = failed(crash, error, at);
    if let TaskRecord::TaskEnded { ending, .. } = &mut record {
        ending.lost_execution = lost_execution;
    }
    record
}
