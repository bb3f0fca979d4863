//! Runs code of the embedding program: a panic, a hang or a block of its thread stays within the call.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkSpec};
use futures::FutureExt as _;

use crate::options::PanicHandler;

/// Reason why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserCodeError {
    /// It panicked.
    #[error("panicked")]
    Panicked,
    /// It took longer than its limit and was stopped.
    #[error("took too long")]
    TimedOut,
    /// A stop covers its scope.
    #[error("was stopped")]
    Stopped,
}

/// Runs `make`'s future as work of a new scope below `scope`, at most this long.
///
/// # Cancel safety
/// Dropping this future does not end the call: its scope owns it.
pub(crate) async fn run<T, F>(
    scope: &Scope,
    place: &'static str,
    max: Duration,
    on_panic: Option<&PanicHandler>,
    make: impl FnOnce(Scope) -> F + Send + 'static,
) -> Result<T, UserCodeError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Ok(call) = scope.child(place, ScopeOptions::default()) else {
        return Err(UserCodeError::Stopped);
    };
    let code = {
        let call = call.clone();
        async move { make(call).await }
    };
    let code = reporting_panics(place, on_panic.cloned(), code);
    let Ok(work) = call.spawn(WorkSpec::new(ItemKind::Future, place), |_cx| code) else {
        return Err(UserCodeError::Stopped);
    };
    match tokio::time::timeout(max, work).await {
        Ok(Ok(value)) => {
            call.close();
            Ok(value)
        }
        Ok(Err(allstop_scope::WorkLost::Panicked)) => Err(UserCodeError::Panicked),
        Ok(Err(_)) => Err(UserCodeError::Stopped),
        Err(_elapsed) => {
            let cause = Cause::new(CauseKind::Deadline).detail(format!("{place} limit"));
            let request = StopRequest::new(Extent::Subtree, cause).grace(Duration::ZERO);
            // The call is dropped by its scope, whoever waits for the receipt.
            drop(call.stop(request));
            Err(UserCodeError::TimedOut)
        }
    }
}

/// The same future; a panic is reported to the handler and continues.
pub(crate) async fn reporting_panics<T>(
    place: &'static str,
    on_panic: Option<PanicHandler>,
    code: impl Future<Output = T>,
) -> T {
    match AssertUnwindSafe(code).catch_unwind().await {
        Ok(value) => value,
        Err(panic) => {
            report(place, on_panic.as_ref(), &*panic);
            resume_unwind(panic)
        }
    }
}

fn report(place: &'static str, on_panic: Option<&PanicHandler>, panic: &(dyn Any + Send)) {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(place, message, "code of a task panicked");
    if let Some(handler) = on_panic.map(Arc::clone)
        && catch_unwind(AssertUnwindSafe(|| handler(place, message))).is_err()
    {
        tracing::error!(place, "the panic handler panicked");
    }
}
