//! Stops of a run: planned for its points, asked for there, and answered in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_session::FollowUp;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::failing_store::FailingStore;
use super::parts::PartWatch;
use crate::observe::{ObservedStop, Point, StopAnswer};
use crate::stop_method::StopMethod;

/// Future of a stop's answer.
pub(crate) type StopReceipt = BoxFuture<'static, Arc<Receipt>>;

/// Run that can be stopped in every way that it has. Each method returns false where there is nothing to do it to.
pub(crate) trait StoppableRun: Send + Sync + 'static {
    fn stops(&self) -> &PlannedStops;

    /// Notes what was shown before something is done.
    fn look_first(&self) {}

    fn stop(&self, extent: Extent, cause: CauseKind) -> bool;

    /// Stops the turn a second time, without waiting for the grace.
    fn force(&self) -> bool;

    fn caller_goes_away(&self) -> bool;

    /// True if the run was started with a deadline.
    fn has_deadline(&self) -> bool {
        false
    }

    fn send(&self, _policy: FollowUp) -> bool {
        false
    }

    fn close(&self) -> bool {
        false
    }

    fn undo(&self) -> bool {
        false
    }
}

/// Stops of one run, with their answers.
pub(crate) struct PlannedStops {
    watch: PartWatch,
    store: Arc<FailingStore>,
    asked: Mutex<Vec<(ObservedStop, Option<StopReceipt>)>>,
    planned: AtomicUsize,
    done: AtomicUsize,
    impossible: AtomicBool,
}

impl PlannedStops {
    pub(crate) fn new(watch: &PartWatch, store: &Arc<FailingStore>) -> Self {
        Self {
            watch: watch.clone(),
            store: Arc::clone(store),
            asked: Mutex::default(),
            planned: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            impossible: AtomicBool::new(false),
        }
    }

    /// Asks for a stop and notes it. False if there was nothing to ask it of.
    pub(crate) fn ask(
        &self,
        extent: Extent,
        cause: Cause,
        stop: impl FnOnce() -> Option<StopReceipt>,
    ) -> bool {
        // Noted first: a stop can reach points, at which another one is asked for.
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

    /// True if something could not be done: the rest of the run is of no use.
    pub(crate) fn is_impossible(&self) -> bool {
        self.impossible.load(Ordering::Relaxed)
    }

    /// True if everything that was planned could be done.
    pub(crate) fn applied(&self) -> bool {
        self.planned.load(Ordering::Relaxed) == self.done.load(Ordering::Relaxed)
    }

    /// Drops what is still waited for.
    pub(crate) fn clear(&self) {
        let asked = std::mem::take(&mut *self.asked.lock());
        drop(asked);
    }
}

/// Plans a stop: what the method does, at the points where it does it.
pub(crate) fn plan<R: StoppableRun>(run: &Arc<R>, point: &Point, method: StopMethod) {
    use StopMethod as M;
    let at = |after: u32, act: Box<dyn FnOnce(&R) -> bool + Send>| {
        let stops = run.stops();
        stops.planned.fetch_add(1, Ordering::Relaxed);
        let acting = Arc::clone(run);
        let number = point.number + after;
        stops.watch.points.at(number, move || {
            acting.look_first();
            let is_done = act(&acting);
            let stops = acting.stops();
            stops
                .done
                .fetch_add(usize::from(is_done), Ordering::Relaxed);
            stops.impossible.fetch_or(!is_done, Ordering::Relaxed);
        });
    };
    let stop_turn = |run: &R| run.stop(Extent::Turn, CauseKind::User);
    match method {
        M::Stop(extent, cause) => at(0, Box::new(move |run| run.stop(extent, cause))),
        M::Drop => at(0, Box::new(R::caller_goes_away)),
        M::Deadline if run.has_deadline() => {}
        // Nobody's: sessions have no deadline of their own.
        M::Deadline => at(0, Box::new(|_| false)),
        M::Store(fault) => at(
            0,
            Box::new(move |run| {
                run.stops().store.fail(fault);
                !fault.has_stop() || stop_turn(run)
            }),
        ),
        M::Again(after) => {
            at(0, Box::new(stop_turn));
            at(after, Box::new(stop_turn));
        }
        M::Wider(after) => {
            at(0, Box::new(stop_turn));
            let wider = |run: &R| run.stop(Extent::Process, CauseKind::Shutdown);
            at(after, Box::new(wider));
        }
        M::Force(after) => {
            at(0, Box::new(stop_turn));
            at(after, Box::new(R::force));
        }
        M::Send(policy) => at(0, Box::new(move |run| run.send(policy))),
        M::Close => at(0, Box::new(R::close)),
        M::Undo => at(0, Box::new(R::undo)),
        M::Kill => at(0, Box::new(|_| kill_this_process())),
    }
}

/// Ends this process as a power cut would.
fn kill_this_process() -> bool {
    let killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.is_ok()
}
