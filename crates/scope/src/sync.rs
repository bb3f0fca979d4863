//! Locks, counts, wake-ups, tokens, time, tasks and processes. A receipt (the result of a stop) is correct only if
//! these primitives work.
//!
//! Scopes, nodes and stops import these primitives only from this module. The models in `tests/loom` build the same
//! source files with other primitives, and try every interleaving.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use allstop_core::decision::CommitDecision;
pub(crate) use allstop_process::{ContainmentChoice, ProcessHandle};
pub(crate) use parking_lot::Mutex;
pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::sync::{Notify, SetOnce};
pub(crate) use tokio::task::AbortHandle;
pub(crate) use tokio::time::{sleep, sleep_until};
pub(crate) use tokio_util::sync::CancellationToken;

pub(crate) use crate::control::{RunningRuntimes, TreeRuntime};
pub(crate) use crate::signal::StopSignal;

/// If a stop covers at most this number of groups, their waiters are woken before the stop returns. A turn has fewer
/// groups. It takes milliseconds to wake the waiters of thousands of groups. If a stop covers more groups, the task of
/// the stop wakes the waiters instead of the caller.
pub(crate) const WOKEN_AT_ONCE_GROUPS_MAX: usize = 64;
