//! Runs what the embedding program brought, as work of its own: a stop never waits for it longer than the ladder takes,
//! whether it listens, sleeps, panics or blocks its thread.

use std::future::Future;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkLost, WorkSpec};

/// What became of it.
pub(crate) enum Foreign<T> {
    /// It answered.
    Answered(T),
    /// A stop was first. It is accounted for in the stop's receipt.
    Stopped,
    /// It panicked.
    Panicked,
}

/// Runs a future of somebody else's in `scope`. A stop drops it at once.
///
/// # Cancel safety
/// Dropping this does not end the work: the scope owns it.
pub(crate) async fn run<T: Send + 'static>(
    scope: &Scope,
    kind: ItemKind,
    name: impl Into<std::sync::Arc<str>>,
    checkpoint: &'static str,
    make: impl Future<Output = T> + Send + 'static,
) -> Foreign<T> {
    let spawned = scope.spawn(WorkSpec::new(kind, name), |cx| async move {
        tokio::select! {
            biased;
            _cause = cx.stopped_at(checkpoint) => None,
            answer = make => Some(answer),
        }
    });
    let Ok(handle) = spawned else {
        return Foreign::Stopped;
    };
    tokio::select! {
        biased;
        joined = handle => match joined {
            // An answer that comes under a stop may be the stop's own doing: a command that was killed has denied nothing.
            Ok(Some(answer)) if !scope.is_stopped() => Foreign::Answered(answer),
            Err(WorkLost::Panicked) => Foreign::Panicked,
            Ok(_) | Err(WorkLost::Dropped | WorkLost::NoThread) => Foreign::Stopped,
        },
        // It may block its thread and never join: the ladder accounts for it.
        () = scope.stopped() => Foreign::Stopped,
    }
}
