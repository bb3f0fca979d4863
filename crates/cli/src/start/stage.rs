//! One stage of a start: work in a scope, which a stop ends with a receipt.

use std::time::Duration;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::receipt::ItemKind;
use allstop_core::{CauseKind, Extent, StopReason};
use allstop_runtime::{Envelope, StartError};
use allstop_scope::{NotStarted, Scope, StopRequest, WorkCx, WorkHandle, WorkLost, WorkSpec};

use crate::control::ControlEffect;
use crate::error::CliError;
use crate::supervise::Supervisor;

/// Failure of a start.
pub(crate) enum StartFailure {
    /// No envelope: the caller did not ask for anything that could have one.
    Usage(CliError),
    /// A failure, or a stop that was first.
    Ended(Box<Envelope>),
}

impl StartFailure {
    fn of(problem: CliError, kind: TurnErrorKind) -> Self {
        if problem.code == 2 {
            return Self::Usage(problem);
        }
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
    /// Covers the stage's work.
    pub(crate) scope: &'a Scope,
    /// Grace of its stop; `None`: the tree's grace.
    pub(crate) grace: Option<Duration>,
}

impl StartStage<'_> {
    /// Waits for the stage's work. A stop ends it with a receipt; where that is the run's deadline, `late` says what it
    /// has overtaken.
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
        // Before the stop: only now is it known which work the deadline overtook.
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
        envelope.add_receipt(receipt);
        Err(StartFailure::Ended(Box::new(envelope)))
    }
}

/// Begins a stage: it hears a stop, unless it blocks its thread at that moment.
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

/// A stage's result; `None` where it was stopped, which its receipt says before anybody asks.
pub(crate) struct Stopped<T>(Option<T>);

impl<T> Stopped<T> {
    pub(crate) fn ok_or_stopped(self) -> Result<T, StartFailure> {
        self.0.ok_or_else(|| StartFailure::lost(&WorkLost::Dropped))
    }
}
