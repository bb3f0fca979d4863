//! The primitives of `src/sync.rs`, in a form that loom observes.

mod once;
mod process;
mod runtime;
mod signal;
mod stop_signal;

#[path = "../../../../core/src/decision.rs"]
mod decision;

pub(crate) use decision::{CommitDecision, CommitVerdict};
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use once::{OnceLock, SetOnce};
pub(crate) use process::{ContainmentChoice, ProcessHandle};
pub(crate) use runtime::{
    AbortHandle, Handle, RunningRuntimes, TreeRuntime, block_on, sleep, sleep_until,
};
pub(crate) use signal::Notify;
pub(crate) use stop_signal::{CancellationToken, StopSignal};

/// Small enough that both cases are tested. In models of one scope, the caller of the stop wakes the waiters. In models
/// of several scopes, the task of the stop wakes them.
pub(crate) const WOKEN_AT_ONCE_GROUPS_MAX: usize = 1;

/// A lock with the interface of `parking_lot`.
#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a panic ends the model")
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().expect("a panic ends the model")
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a panic ends the model")
    }
}
