//! Stops of a run. Each stop is planned for a point of the run, requested at this point, and then answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::failing_store::FailingStore;
use super::parts::PartWatch;
use crate::observe::{ObservedStop, StopAnswer};
use crate::stop_method::StopMethod;

/// Future of a stop's answer.
pub(crate) type StopReceipt = BoxFuture<'static, Arc<Receipt>>;

/// Run that can be stopped by every method that applies to it.
pub(crate) trait StoppableRun: Send + Sync + 'static {
    fn stops(&self) -> &PlannedStops;

    /// Records the events that were shown before the action of a stop method.
    fn look_first(&self) {}

    /// Performs the action of the stop method `method` at the current point. Returns false if the run has no target for
    /// the action.
    fn act(&self, method: StopMethod) -> bool;
}

/// Stops of one run, with the answers.
pub(crate) struct PlannedStops {
    watch: PartWatch,
    store: Arc<FailingStore>,
    asked: Mutex<Vec<(ObservedStop, Option<StopReceipt>)>>,
    /// Number of planned actions that are not yet done.
    left: AtomicUsize,
    impossible: AtomicBool,
}

impl PlannedStops {
    pub(crate) fn new(watch: &PartWatch, store: &Arc<FailingStore>) -> Self {
        Self {
            watch: watch.clone(),
            store: Arc::clone(store),
            asked: Mutex::default(),
            left: AtomicUsize::new(0),
            impossible: AtomicBool::new(false),
        }
    }

    /// Requests a stop and records it. Returns false if the stop has no target.
    pub(crate) fn ask(
        &self,
        extent: Extent,
        cause: Cause,
        stop: impl FnOnce() -> Option<StopReceipt>,
    ) -> bool {
        // Record this stop before it is requested. During the request, the run can reach a point at which another stop
        // is requested, and the other stop must come later in the list.
        let place = self.asked.lock().len();
        let asked = ObservedStop {
            extent,
            cause,
            point: self.watch.points.newest(),
            accepted: self.watch.witness.now(),
            at: self.watch.points.elapsed(),
            answer: None,
        };
        self.asked.lock().push((asked, None));
        let answer = stop();
        let mut all = self.asked.lock();
        if let (Some(answer), Some((asked, waiting))) = (answer, all.get_mut(place)) {
            asked.accepted = self.watch.witness.now();
            *waiting = Some(answer);
            return true;
        }
        all.truncate(place);
        false
    }

    pub(crate) fn poll_answers(&self, cx: &mut Context<'_>) {
        for (asked, receipt) in &mut *self.asked.lock() {
            if let Some(waiting) = receipt
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *receipt = None;
                asked.answer = Some(StopAnswer {
                    receipt: answer,
                    order: self.watch.witness.now(),
                    at: self.watch.points.elapsed(),
                });
            }
        }
    }

    pub(crate) fn all_answered(&self) -> bool {
        let asked = self.asked.lock();
        asked.iter().all(|(_, waiting)| waiting.is_none())
    }

    pub(crate) fn observed(&self) -> Vec<ObservedStop> {
        let asked = self.asked.lock();
        asked.iter().map(|(asked, _)| asked.clone()).collect()
    }

    /// True if a planned action was impossible, so that the rest of the run is useless.
    pub(crate) fn is_impossible(&self) -> bool {
        self.impossible.load(Ordering::Relaxed)
    }

    /// True if every planned action was done.
    pub(crate) fn applied(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Drops all answers that are still awaited.
    pub(crate) fn clear(&self) {
        let asked = std::mem::take(&mut *self.asked.lock());
        drop(asked);
    }
}

/// Plans a stop: adds the actions of the method to their points.
pub(crate) fn plan<R: StoppableRun>(run: &Arc<R>, point: u32, method: StopMethod) {
    use StopMethod as M;
    let second = match method {
        M::Again(after) => Some((after, M::USER)),
        M::Wider(after) => Some((after, M::Stop(Extent::Process, CauseKind::Shutdown))),
        M::Force(after) => Some((after, M::Force(0))),
        _ => None,
    };
    let first = if second.is_some() { M::USER } else { method };
    for (after, act) in [(0, first)].into_iter().chain(second) {
        let stops = run.stops();
        stops.left.fetch_add(1, Ordering::Relaxed);
        let run = Arc::clone(run);
        stops.watch.points.at(point + after, move || {
            run.look_first();
            let stops = run.stops();
            let is_done = match act {
                M::Store(fault) => {
                    stops.store.fail(fault);
                    !fault.has_stop() || run.act(M::USER)
                }
                M::Kill => kill_this_process(),
                act => run.act(act),
            };
            let done = usize::from(is_done);
            stops.left.fetch_sub(done, Ordering::Relaxed);
            stops.impossible.fetch_or(!is_done, Ordering::Relaxed);
        });
    }
}

/// Kills this process with SIGKILL.
fn kill_this_process() -> bool {
    let killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.is_ok()
}
