//! Options of a task manager.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_core::Timestamp;

use crate::executor::ExecutorError;
use crate::observer::TaskObserver;

/// Options of a task manager. All limits apply to one manager, unless a field states otherwise.
#[derive(Clone)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Time in which a second message with the same id and owner counts as a repetition and starts no execution. `None`
    /// means that the time is unlimited. With zero, repetitions are not detected.
    pub repetition_max: Option<Duration>,
    /// Maximum number of executions at the same time.
    pub running_max: Option<usize>,
    /// Maximum number of executions of one owner at the same time. In a cluster, the limit applies to all workers
    /// together; every worker must have the same number here. Tasks beyond the limit wait, and start in no particular
    /// order. With this limit, the waiting requests of one owner take at most half of the queue.
    pub running_per_owner_max: Option<usize>,
    /// Treatment of a request beyond a limit.
    pub when_full: WhenFull,
    /// True if a drain or a shutdown starts and ends no execution that waits for a slot. Its task stays as it is in the
    /// store, and the next manager of the store starts the execution. Only useful with a store that outlives the
    /// process. In a cluster, the field has no effect.
    pub keeps_queue: bool,
    /// Longest time between two events of an execution.
    pub inactivity_max: Option<Duration>,
    /// Longest duration of an execution.
    pub execution_max: Option<Duration>,
    /// Longest duration of one call of code of the embedding program: a processor, factory, canceler or clean-up. If a
    /// stop waits for the call, the limit is the grace of the stop (the time before the stop uses force).
    pub user_code_max: Duration,
    /// Longest time that a caller waits for a write: the write of a message, or the write of an execution's end. The
    /// manager repeats the write until it succeeds or the manager shuts down.
    pub ending_write_max: Duration,
    /// Number of events that can wait in the queue of an executor. If the queue is full, the executor waits for the
    /// store.
    pub event_queue_len_max: usize,
    /// Wall-clock time, for records.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Called after each panic in code of the embedding program.
    pub on_panic: Option<PanicHandler>,
    /// Observer of the executions.
    pub observer: Option<Arc<dyn TaskObserver>>,
}

/// Called with the name of a callback (`executor`, `processor` …) and the message of a panic. Returns the error with
/// which the callback then fails; `None` means an error without details, such as "the executor panicked".
pub type PanicHandler = Arc<dyn Fn(&'static str, &str) -> Option<ExecutorError> + Send + Sync>;

/// Reason of a refusal: one owner has its whole share of the queue.
pub(crate) const OWNER_WAITS: &str = "too many of your tasks wait";

/// Maximum number of waiting requests of one owner, if the number of executions of one owner is limited: half of the
/// queue, so that other owners find a place.
pub(crate) fn queue_share(len_max: usize) -> usize {
    len_max.div_ceil(2)
}

/// Treatment of a request beyond a limit of executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Refuse the request. In a cluster, the request waits instead, because the limits of [`TaskOptions`] apply to a
    /// worker. [`AdmissionLimits`](crate::AdmissionLimits) are the limits of a process that accepts requests.
    Refuse,
    /// Accept the request, and start its execution when a slot is free. If `len_max` tasks already wait, the request is
    /// refused.
    Queue {
        /// Maximum number of waiting tasks.
        len_max: usize,
    },
}

/// Default length of the queue. At three tasks a second, one machine needs an hour for this number of tasks.
const QUEUE_LEN_MAX: usize = 10_000;

/// Default of [`TaskOptions::event_queue_len_max`]. An append of this many events is as fast as an append of one event.
const EVENT_QUEUE_LEN_MAX: usize = 64;

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            repetition_max: None,
            running_max: None,
            running_per_owner_max: None,
            when_full: WhenFull::Queue {
                len_max: QUEUE_LEN_MAX,
            },
            keeps_queue: false,
            inactivity_max: None,
            execution_max: None,
            user_code_max: Duration::from_secs(10),
            ending_write_max: Duration::from_secs(10),
            event_queue_len_max: EVENT_QUEUE_LEN_MAX,
            now: Arc::new(|| SystemTime::now().into()),
            on_panic: None,
            observer: None,
        }
    }
}

impl TaskOptions {
    /// Sets the time in which a second message with the same id and owner counts as a repetition.
    #[must_use]
    pub fn repetition_max(mut self, repetition_max: impl Into<Option<Duration>>) -> Self {
        self.repetition_max = repetition_max.into();
        self
    }

    /// Sets the maximum number of executions at the same time.
    #[must_use]
    pub fn running_max(mut self, running_max: impl Into<Option<usize>>) -> Self {
        self.running_max = running_max.into();
        self
    }

    /// Sets the maximum number of executions of one owner at the same time.
    #[must_use]
    pub fn running_per_owner_max(
        mut self,
        running_per_owner_max: impl Into<Option<usize>>,
    ) -> Self {
        self.running_per_owner_max = running_per_owner_max.into();
        self
    }

    /// Sets the treatment of a request beyond a limit.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets if a drain or a shutdown leaves the waiting executions in the store.
    #[must_use]
    pub fn keeps_queue(mut self, keeps_queue: bool) -> Self {
        self.keeps_queue = keeps_queue;
        self
    }

    /// Sets the longest time between two events of an execution.
    #[must_use]
    pub fn inactivity_max(mut self, inactivity_max: impl Into<Option<Duration>>) -> Self {
        self.inactivity_max = inactivity_max.into();
        self
    }

    /// Sets the longest duration of an execution.
    #[must_use]
    pub fn execution_max(mut self, execution_max: impl Into<Option<Duration>>) -> Self {
        self.execution_max = execution_max.into();
        self
    }

    /// Sets the longest duration of one call of code of the embedding program.
    #[must_use]
    pub fn user_code_max(mut self, user_code_max: Duration) -> Self {
        self.user_code_max = user_code_max;
        self
    }

    /// Sets the longest time that a caller waits for a write.
    #[must_use]
    pub fn ending_write_max(mut self, ending_write_max: Duration) -> Self {
        self.ending_write_max = ending_write_max;
        self
    }

    /// Sets the number of events that can wait in the queue of an executor.
    #[must_use]
    pub fn event_queue_len_max(mut self, event_queue_len_max: usize) -> Self {
        self.event_queue_len_max = event_queue_len_max;
        self
    }

    /// Sets the wall-clock time, for records.
    #[must_use]
    pub fn now(mut self, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.now = now;
        self
    }

    /// Sets the function that is called after each panic in code of the embedding program.
    #[must_use]
    pub fn on_panic(mut self, on_panic: PanicHandler) -> Self {
        self.on_panic = Some(on_panic);
        self
    }

    /// Sets the observer of the executions.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn TaskObserver>) -> Self {
        self.observer = Some(observer);
        self
    }
}

impl fmt::Debug for TaskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskOptions")
            .field("running_max", &self.running_max)
            .field("running_per_owner_max", &self.running_per_owner_max)
            .field("when_full", &self.when_full)
            .field("inactivity_max", &self.inactivity_max)
            .field("execution_max", &self.execution_max)
            .finish_non_exhaustive()
    }
}
