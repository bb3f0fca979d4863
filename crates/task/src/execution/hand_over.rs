//! Hand-over of an execution: a worker that shuts down stops the executor, and another worker continues the task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_core::{Cause, CauseKind};
use allstop_scope::Stop;

use super::{Execution, ExecutionEngine, user_code};
use crate::executor::Executor;
use crate::feed::TaskFeed;
use crate::model::{TaskRecord, TaskState};
use crate::options::PanicHandler;

/// Decision about the hand-over of one execution.
#[derive(Default)]
pub(super) struct HandOver {
    /// Executor of the execution, and the feed of its task. Empty before the executor starts.
    running: OnceLock<(Arc<dyn Executor>, Arc<TaskFeed>)>,
    is_wanted: AtomicBool,
}

impl std::fmt::Debug for HandOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandOver")
            .field("is_wanted", &self.is_wanted)
            .finish_non_exhaustive()
    }
}

impl Execution {
    /// Notes the started executor.
    pub(super) fn note_executor(&self, executor: &Arc<dyn Executor>, feed: &Arc<TaskFeed>) {
        let running = (Arc::clone(executor), Arc::clone(feed));
        self.hand_over.running.get_or_init(|| running);
    }

    /// True if another worker can continue this execution, according to its executor.
    pub(crate) fn can_hand_over(&self, on_panic: Option<&PanicHandler>) -> bool {
        let Some((executor, feed)) = self.hand_over.running.get() else {
            return false;
        };
        let Some((_, task)) = feed.current().filter(|_| self.worker.is_some()) else {
            return false;
        };
        let can = catch_unwind(AssertUnwindSafe(|| executor.can_hand_over(&task)));
        can.unwrap_or_else(|panic| {
            user_code::report("can_hand_over", on_panic, &*panic);
            false
        })
    }

    /// Stops the execution and hands its task over. If another stop came first, the task ends with that stop.
    pub(crate) fn hand_over(&self, cause: Cause) -> Stop {
        self.hand_over.is_wanted.store(true, Ordering::Relaxed);
        self.stop(cause)
    }

    /// True if the stop of this execution hands the task over.
    pub(super) fn is_handed_over(&self) -> bool {
        let cause = self.scope.cause();
        self.hand_over.is_wanted.load(Ordering::Relaxed)
            && cause.is_some_and(|cause| cause.kind == CauseKind::Shutdown)
    }
}

impl ExecutionEngine {
    /// Returns the hand-over instead of the end, if the stop of the execution hands its task over. If the executor has
    /// completed the task within the grace, the task ends. It also ends if work still runs here: another worker must not
    /// run the task at the same time.
    pub(super) fn or_hand_over(&self, end: TaskRecord) -> TaskRecord {
        let TaskRecord::TaskEnded { status, ending, .. } = &end else {
            return end;
        };
        let is_stopped = matches!(status.state, TaskState::Canceled | TaskState::Failed);
        match (&ending.receipt, self.stream.task()) {
            (Some(receipt), Some(task))
                if is_stopped
                    && receipt.quiet()
                    && task.is_executing
                    && self.execution.is_handed_over() =>
            {
                TaskRecord::HandedOver {
                    epoch: task.epoch,
                    receipt: Arc::clone(receipt),
                    at: status.at,
                }
            }
            _ => end,
        }
    }
}
