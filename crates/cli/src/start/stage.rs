//! One stage of the start of a command. Its work runs in a scope, so a stop can end it and report it in a receipt.

use std::time::Duration;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::receipt::ItemKind;
use allstop_core::{CauseKind, Extent, StopReason};
use allstop_runtime::{Envelope, StartError};
use allstop_scope::{NotStarted, Scope, StopRequest, WorkCx, WorkHandle, WorkLost, WorkSpec};

use crate::control::ControlEffect;
use crate::error::{CliError, CliErrorKind};
use crate::supervise::Supervisor;

/// Failure of a start.
pub(crate) enum StartFailure {
    /// A usage error. In this case, no envelope (JSON object with the result) is printed.
    Usage(CliError),
    /// A failure, or a stop that came before the end of the start.
    Ended(Box<Envelope>),
}

impl StartFailure {
    fn of(problem: CliError, kind: TurnErrorKind) -> Self {
        if problem.code() == 2 {
            return Self::Usage(problem);
        }
        let kind = match problem.kind {
            CliErrorKind::Busy => TurnErrorKind::Busy,
            _ => kind,
        };
        let CliError { message, hint, .. } = problem;
        Self::failed(TurnError {
            kind,
            message,
            hint,
        })
    }

    fn failed(error: TurnError) -> Self {
        Self::Ended(Box::new(Envelope::of_no_run(
            None,
            StopReason::Error,
            Some(error),
        )))
    }

    pub(crate) fn input(problem: CliError) -> Self {
        Self::of(problem, TurnErrorKind::Invalid)
    }

    fn lost(lost: &dyn std::fmt::Display) -> Self {
        Self::failed(TurnError {
            kind: TurnErrorKind::Bug,
            message: format!("the start was lost: {lost}"),
            hint: Some("this is a bug of Allstop: please report it".to_owned()),
        })
    }
}

impl From<StartError> for StartFailure {
    fn from(error: StartError) -> Self {
        if error.kind.is_usage() {
            return Self::Usage(error.into());
        }
        Self::failed(error.into())
    }
}

impl From<CliError> for StartFailure {
    fn from(problem: CliError) -> Self {
        Self::of(problem, TurnErrorKind::Store)
    }
}

/// One stage of a start.
pub(crate) struct StartStage<'a> {
    pub(crate) supervisor: &'a mut Supervisor,
    /// Scope of the stage's work.
    pub(crate) scope: &'a Scope,
    /// Grace of a stop of this stage; `None` selects the default of the tree of scopes.
    pub(crate) grace: Option<Duration>,
}

impl StartStage<'_> {
    /// Waits for the stage's work. If a stop comes first, returns an envelope with the receipt of the stop. If the
    /// run's deadline was the cause, `late` returns the error that names the unfinished work.
    pub(crate) async fn wait<T>(
        &mut self,
        work: Result<WorkHandle<T>, NotStarted>,
        late: impl FnOnce() -> TurnError,
    ) -> Result<T, StartFailure> {
        let mut work = work.map_err(|refused| StartFailure::lost(&refused))?;
        let cause = loop {
            tokio::select! {
                biased;
                effect = self.supervisor.next() => if let ControlEffect::Stop(cause) = effect {
                    break cause;
                },
                done = &mut work => return done.map_err(|lost| StartFailure::lost(&lost)),
            }
        };
        // The error is created before the stop, because the unfinished work is no longer visible after the stop.
        let is_late = cause.kind == CauseKind::Deadline;
        let error = is_late.then(late);
        let mut order = StopRequest::new(Extent::Process, cause);
        order.grace = self.grace;
        let stop = self.scope.stop(order);
        let receipt = self
            .supervisor
            .wait_to_exit(stop.receipt(), |_| stop.force())
            .await
            .unwrap_or_else(|| stop.account_now());
        let reason = self.supervisor.control.stop_reason();
        let mut envelope = Envelope::of_no_run(None, reason, error);
        envelope.cause = self.supervisor.control.cause().cloned();
        envelope.add_receipt(receipt);
        Err(StartFailure::Ended(Box::new(envelope)))
    }
}

/// Begins a stage. A stop ends the stage, unless the code of the stage blocks its thread at that moment.
pub(crate) fn begin<T: Send + 'static>(
    scope: &Scope,
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<WorkHandle<Stopped<T>>, NotStarted> {
    let spec = WorkSpec::new(ItemKind::Future, name);
    scope.spawn(spec, move |cx: WorkCx| async move {
        tokio::select! {
            biased;
            done = work => Stopped(Some(done)),
            _cause = cx.stopped_at(name) => Stopped(None),
        }
    })
}

/// Result of a stage; `None` if the stage was stopped. In that case, [`StartStage::wait`] has already returned the
/// receipt of the stop.
pub(crate) struct Stopped<T>(Option<T>);

impl<T> Stopped<T> {
    pub(crate) fn ok_or_stopped(self) -> Result<T, StartFailure> {
        self.0.ok_or_else(|| StartFailure::lost(&WorkLost::Dropped))
    }
}
