//! The primitives that the truth of a receipt rests on: locks, counts, wake-ups, tokens, time, tasks and processes.
//!
//! Scopes, nodes and stops import them from here alone, so that the models in `tests/loom` can build the same source
//! files over primitives whose every interleaving is tried.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use allstop_core::decision::CommitDecision;
pub(crate) use allstop_process::{ContainmentChoice, ProcessHandle};
pub(crate) use parking_lot::Mutex;
pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::sync::{Notify, SetOnce};
pub(crate) use tokio::task::AbortHandle;
pub(crate) use tokio::time::{sleep, sleep_until};
pub(crate) use tokio_util::sync::CancellationToken;

pub(crate) use crate::signal::StopSignal;

/// The largest extent whose waiters are woken before the stop returns; a turn is smaller. Waking the waiters of
/// thousands of cells takes milliseconds, which the ladder spends instead of the caller.
pub(crate) const WOKEN_AT_ONCE_CELLS_MAX: usize = 64;
