//! The primitives on which the correctness of a receipt rests: locks, counts, wake-ups, tokens, time, tasks and
//! processes.
//!
//! Scopes, nodes and stops import these primitives only from this module. The models in `tests/loom` build the same
//! source files with their own primitives, and try every interleaving.

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
/// thousands of groups takes milliseconds. For such an extent, the ladder wakes them instead of the caller.
pub(crate) const WOKEN_AT_ONCE_GROUPS_MAX: usize = 64;
