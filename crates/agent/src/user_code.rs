//! Runs code of the embedding program as scoped work. A stop waits for the code only as long as the steps of the stop
//! take, even if the code ignores the stop, panics or blocks its thread.

use std::future::Future;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkLost, WorkSpec};

/// Result of code of the embedding program.
pub(crate) enum UserCodeResult<T> {
    Answered(T),
    /// A stop came first. The receipt of the stop lists the work.
    Stopped,
    Panicked,
}

/// Runs a future of the embedding program in `scope`. A stop drops the future at once.
///
/// # Cancel safety
/// Dropping this future does not end the work, because the scope owns the work.
pub(crate) async fn run<T: Send + 'static>(
    scope: &Scope,
    kind: ItemKind,
    name: impl Into<std::sync::Arc<str>>,
    checkpoint: &'static str,
    code: impl Future<Output = T> + Send + 'static,
) -> UserCodeResult<T> {
    let spawned = scope.spawn(WorkSpec::new(kind, name), |cx| async move {
        tokio::select! {
            biased;
            _cause = cx.stopped_at(checkpoint) => None,
            answer = code => Some(answer),
        }
    });
    let Ok(handle) = spawned else {
        return UserCodeResult::Stopped;
    };
    tokio::select! {
        biased;
        joined = handle => match joined {
            // An answer during a stop may be an effect of the stop. For example, the failure of a command that the stop
            // has killed is not a denial.
            Ok(Some(answer)) if !scope.is_stopped() => UserCodeResult::Answered(answer),
            Err(WorkLost::Panicked) => UserCodeResult::Panicked,
            Ok(_) | Err(WorkLost::Dropped | WorkLost::NoThread) => UserCodeResult::Stopped,
        },
        // The work may block its thread and never return. The receipt of the stop of the scope then lists this work.
        () = scope.stopped() => UserCodeResult::Stopped,
    }
}
