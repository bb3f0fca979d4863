//! The run of a case while it goes on: what can be stopped, and the stops that were asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::RunOutcome;
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{Scope, StopOrder};
use allstop_tools::BackgroundHost as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::aftermath::{Answered, Asked, Gone};
use super::point::{Point, Points};
use super::stage::Stage;
use super::store::FailingStore;
use super::subject::Running;
use super::way::Way;
use super::world::{Order, World};

/// How a run came to its end.
pub(crate) struct Ended {
    /// `None`: nobody was there any more, the engine panicked, or it hung.
    pub(crate) outcome: Option<RunOutcome>,
    pub(crate) over: Order,
    pub(crate) over_at: Duration,
    pub(crate) hung: bool,
}

/// The answer of a stop, until it is there.
type Waiting = Option<BoxFuture<'static, Arc<Receipt>>>;

/// What can be stopped.
pub(crate) struct Live {
    world: World,
    points: Points,
    root: Scope,
    session: Scope,
    background: Scope,
    store: Arc<FailingStore>,
    run: Mutex<Option<Box<dyn Running>>>,
    asked: Mutex<Vec<(Asked, Waiting)>>,
    caller_gone: Mutex<Option<Gone>>,
    over: AtomicBool,
    /// How many things were to be done, and how many were.
    planned: AtomicUsize,
    done: AtomicUsize,
    impossible: AtomicBool,
}

impl Live {
    pub(crate) fn new(stage: &Stage) -> Arc<Self> {
        Arc::new(Self {
            world: stage.world().clone(),
            points: stage.points().clone(),
            root: stage.root().clone(),
            session: stage.session_scope().clone(),
            background: stage.background().scope(),
            store: Arc::clone(stage.store()),
            run: Mutex::default(),
            asked: Mutex::default(),
            caller_gone: Mutex::default(),
            over: AtomicBool::new(false),
            planned: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            impossible: AtomicBool::new(false),
        })
    }

    /// Plans what a way does, at the points where it does it.
    pub(crate) fn plan(self: &Arc<Self>, points: &Points, point: &Point, way: Way) {
        let user = Cause::new(CauseKind::User);
        match way {
            Way::Stop(extent, cause) => {
                self.at(points, point.number, move |live| {
                    live.ask(StopOrder::new(extent, Cause::new(cause)))
                });
            }
            Way::Drop => self.at(points, point.number, Self::go_away),
            // Set when the run starts.
            Way::Deadline => {}
            // What only a session has is never done, and the case does not count.
            Way::Send(_) | Way::Close | Way::Undo => {
                self.planned.fetch_add(1, Ordering::Relaxed);
            }
            Way::Store(fault) => self.at(points, point.number, move |live| {
                live.store.fail(fault);
                !fault.has_stop() || live.ask(StopOrder::new(Extent::Turn, user))
            }),
            Way::Again(_) | Way::Wider(_) | Way::Force(_) => {
                let first = StopOrder::new(Extent::Turn, user.clone());
                let second = match way {
                    Way::Wider(_) => {
                        StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown))
                    }
                    Way::Force(_) => first.clone().grace(Duration::ZERO),
                    _ => first.clone(),
                };
                let later = point.number + way.second_after().unwrap_or(1);
                self.at(points, point.number, move |live| live.ask(first));
                self.at(points, later, move |live| live.ask(second));
            }
            Way::Kill => self.at(points, point.number, |_| super::kill::this_process()),
        }
    }

    fn at(
        self: &Arc<Self>,
        points: &Points,
        number: u32,
        act: impl FnOnce(&Self) -> bool + Send + 'static,
    ) {
        self.planned.fetch_add(1, Ordering::Relaxed);
        let live = Arc::clone(self);
        points.at(number, move || {
            if act(&live) {
                live.done.fetch_add(1, Ordering::Relaxed);
            } else {
                live.impossible.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Whether something could not be done: the rest of the run is of no use.
    pub(crate) fn is_impossible(&self) -> bool {
        self.impossible.load(Ordering::Relaxed)
    }

    /// Whether everything that was planned could be done.
    pub(crate) fn applied(&self) -> bool {
        self.planned.load(Ordering::Relaxed) == self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn started(&self, run: Box<dyn Running>) {
        *self.run.lock() = Some(run);
    }

    fn go_away(&self) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let Some(run) = self.run.lock().take() else {
            return false;
        };
        drop(run);
        *self.caller_gone.lock() = Some(Gone {
            point: self.points.newest(),
            order: self.world.now(),
            at: self.points.elapsed(),
        });
        true
    }

    /// The run is over: from here on stops come too late.
    pub(crate) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Asks for a stop. `false`: there is nothing that it could be asked of.
    fn ask(&self, order: StopOrder) -> bool {
        let (extent, cause) = (order.extent, order.cause.clone());
        // In the order in which they were asked, although one can lead to the next before it returns.
        let place = self.asked.lock().len();
        let asked = Asked {
            extent,
            cause,
            point: self.points.newest(),
            accepted: self.world.now(),
            at: self.points.elapsed(),
            answer: None,
        };
        self.asked.lock().push((asked, None));
        let answer = self.stop(extent, order);
        let mut all = self.asked.lock();
        if let (Some(answer), Some((asked, waiting))) = (answer, all.get_mut(place)) {
            asked.accepted = self.world.now();
            *waiting = Some(answer);
            return true;
        }
        all.truncate(place);
        false
    }

    fn stop(&self, extent: Extent, order: StopOrder) -> Waiting {
        let of_scope = |scope: &Scope, order| {
            let stop = scope.stop(order);
            async move { stop.receipt().await }.boxed()
        };
        match extent {
            Extent::Call => Some(of_scope(&self.world.running_call()?, order)),
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

    pub(crate) fn poll_answers(&self, cx: &mut Context<'_>, stage: &Stage) {
        for (asked, answer) in &mut *self.asked.lock() {
            if let Some(waiting) = answer
                && let Poll::Ready(receipt) = waiting.poll_unpin(cx)
            {
                *answer = None;
                asked.answer = Some(Answered {
                    receipt,
                    order: stage.world().now(),
                    at: stage.points().elapsed(),
                });
            }
        }
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.asked
            .lock()
            .iter()
            .all(|(_, waiting)| waiting.is_none())
    }

    pub(crate) fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<Option<RunOutcome>> {
        let mut run = self.run.lock();
        let Some(running) = &mut *run else {
            return Poll::Pending;
        };
        // It stays where it is: what has ended can be asked to stop too.
        running.poll_outcome(cx).map(Result::ok)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked
            .lock()
            .iter()
            .map(|(asked, _)| asked.clone())
            .collect()
    }

    pub(crate) fn caller_gone(&self) -> Option<Gone> {
        *self.caller_gone.lock()
    }
}
