//! A run of turns under way: what can be stopped of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::RunOutcome;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Scope, StopRequest};
use allstop_tools::BackgroundHost as _;
use futures::FutureExt as _;
use parking_lot::Mutex;

use crate::observe::{CallerGone, Points, RunWitness};
use crate::stage::{PlannedStops, RunStage, RunningSubject, StopReceipt, StoppableRun};
use crate::stop_method::StopMethod;

/// A run of turns under way.
pub(super) struct RunUnderWay {
    witness: RunWitness,
    points: Points,
    root: Scope,
    session: Scope,
    background: Scope,
    run: Mutex<Option<Box<dyn RunningSubject>>>,
    stops: PlannedStops,
    caller_gone: Mutex<Option<CallerGone>>,
    over: AtomicBool,
}

impl RunUnderWay {
    pub(super) fn new(stage: &RunStage) -> Arc<Self> {
        Arc::new(Self {
            witness: stage.witness().clone(),
            points: stage.watch.points.clone(),
            root: stage.root.clone(),
            session: stage.session.clone(),
            background: stage.background().scope(),
            run: Mutex::default(),
            stops: stage.planned_stops(),
            caller_gone: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    pub(super) fn started(&self, run: Box<dyn RunningSubject>) {
        *self.run.lock() = Some(run);
    }

    /// Notes that the run is over: from here on stops come too late.
    pub(super) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<Option<RunOutcome>> {
        let mut run = self.run.lock();
        let Some(running) = &mut *run else {
            return Poll::Pending;
        };
        // It stays where it is: what has ended can be asked to stop too.
        running.poll_outcome(cx).map(Result::ok)
    }

    pub(super) fn caller_gone(&self) -> Option<CallerGone> {
        *self.caller_gone.lock()
    }

    fn ask(&self, order: StopRequest) -> bool {
        let (extent, cause) = (order.extent, order.cause.clone());
        self.stops.ask(extent, cause, || self.receipt_of(order))
    }

    fn receipt_of(&self, order: StopRequest) -> Option<StopReceipt> {
        let of_scope = |scope: &Scope, order| {
            let stop = scope.stop(order);
            async move { stop.receipt().await }.boxed()
        };
        match order.extent {
            Extent::Call => Some(of_scope(&self.witness.running_call()?.1, order)),
            Extent::Turn => {
                // Not under the lock: a stop can reach points, and what is done there may need it.
                let run = self.run.lock().take()?;
                let answer = run.stop(order.bystander(&self.background));
                self.run.lock().get_or_insert(run);
                Some(answer)
            }
            Extent::Process => Some(of_scope(&self.root, order)),
            _ => Some(of_scope(&self.session, order)),
        }
    }
}

impl StoppableRun for RunUnderWay {
    fn stops(&self) -> &PlannedStops {
        &self.stops
    }

    fn act(&self, method: StopMethod) -> bool {
        match method {
            StopMethod::Stop(extent, cause) => {
                self.ask(StopRequest::new(extent, Cause::new(cause)))
            }
            StopMethod::Force(_) => {
                let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User));
                self.ask(order.grace(Duration::ZERO))
            }
            StopMethod::Drop => self.caller_goes_away(),
            _ => false,
        }
    }
}

impl RunUnderWay {
    fn caller_goes_away(&self) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let Some(run) = self.run.lock().take() else {
            return false;
        };
        drop(run);
        *self.caller_gone.lock() = Some(CallerGone {
            point: self.points.newest(),
            order: self.witness.now(),
            at: self.points.elapsed(),
        });
        true
    }
}
