//! Runs code of the embedding program. If the code panics, hangs or blocks its thread, only this call fails.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkLost, WorkSpec};
use futures::FutureExt as _;

use crate::executor::ExecutorError;
use crate::options::PanicHandler;

/// Reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserCodeError {
    /// The call panicked. Contains the error that the panic handler has chosen, if any.
    #[error("panicked")]
    Panicked(Option<ExecutorError>),
    /// The call exceeded its time limit and was stopped.
    #[error("took too long")]
    TimedOut,
    /// A stop covers the scope of the call.
    #[error("was stopped")]
    Stopped,
}

impl UserCodeError {
    /// Error of the callback, for people: the error from the panic handler, or the reason.
    pub(crate) fn of(self, callback: &str) -> ExecutorError {
        match self {
            Self::Panicked(Some(chosen)) => chosen,
            reason => ExecutorError::new(format!("the {callback} {reason}")),
        }
    }
}

/// Error that the panic handler has chosen. Empty before a panic, and if the handler has chosen no error.
pub(super) type ChosenError = Arc<OnceLock<ExecutorError>>;

/// Runs `make`'s future as work of a new scope below `scope`, for at most `max`.
///
/// # Cancel safety
/// Dropping this future stops the call.
pub(crate) async fn run<T, F>(
    scope: &Scope,
    callback: &'static str,
    max: Duration,
    on_panic: Option<&PanicHandler>,
    make: impl FnOnce(Scope) -> F + Send + 'static,
) -> Result<T, UserCodeError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Ok(scope) = scope.child(callback, ScopeOptions::default()) else {
        return Err(UserCodeError::Stopped);
    };
    let mut call = UserCall {
        scope,
        callback,
        has_returned: false,
    };
    let code = {
        let scope = call.scope.clone();
        async move { make(scope).await }
    };
    let chosen = ChosenError::default();
    let code = reporting_panics(callback, on_panic.cloned(), Arc::clone(&chosen), code);
    let spec = WorkSpec::new(ItemKind::Future, callback);
    let Ok(work) = call.scope.spawn(spec, |_cx| code) else {
        return Err(UserCodeError::Stopped);
    };
    match tokio::time::timeout(max, work).await {
        Ok(Ok(value)) => {
            call.has_returned = true;
            Ok(value)
        }
        Ok(Err(WorkLost::Panicked)) => Err(UserCodeError::Panicked(chosen.get().cloned())),
        Ok(Err(_)) => Err(UserCodeError::Stopped),
        Err(_elapsed) => Err(UserCodeError::TimedOut),
    }
}

/// Scope of a call. All work in this scope ends when the call returns, or when the caller's time limit ends the call.
struct UserCall {
    scope: Scope,
    callback: &'static str,
    has_returned: bool,
}

impl Drop for UserCall {
    fn drop(&mut self) {
        self.scope.close();
        if self.scope.is_quiet() {
            return;
        }
        let request = if self.has_returned {
            let cause = Cause::new(CauseKind::Parent).detail(format!("{} returned", self.callback));
            StopRequest::new(Extent::Subtree, cause)
        } else {
            let cause = Cause::new(CauseKind::Deadline).detail(format!("{} limit", self.callback));
            StopRequest::new(Extent::Subtree, cause).grace(Duration::ZERO)
        };
        // The stop continues, if necessary with force, even if no caller waits for the receipt.
        drop(self.scope.stop(request));
    }
}

/// Runs the future. If the future panics, reports the panic to the handler, keeps the error that the handler chooses, and
/// then resumes the panic.
pub(super) async fn reporting_panics<T>(
    callback: &'static str,
    on_panic: Option<PanicHandler>,
    chosen: ChosenError,
    code: impl Future<Output = T>,
) -> T {
    match AssertUnwindSafe(code).catch_unwind().await {
        Ok(value) => value,
        Err(panic) => {
            if let Some(error) = report(callback, on_panic.as_ref(), &*panic) {
                chosen.get_or_init(|| error);
            }
            resume_unwind(panic)
        }
    }
}

/// Logs a panic, and passes it to the handler of the embedding program. Returns the error that the handler chooses.
pub(crate) fn report(
    callback: &'static str,
    on_panic: Option<&PanicHandler>,
    panic: &(dyn Any + Send),
) -> Option<ExecutorError> {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(place = callback, message, "code of a task panicked");
    let handler = on_panic.map(Arc::clone)?;
    catch_unwind(AssertUnwindSafe(|| handler(callback, message))).unwrap_or_else(|_panic| {
        tracing::error!(place = callback, "the panic handler panicked");
        None
    })
}
