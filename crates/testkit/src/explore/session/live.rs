//! The run of a session while it goes on: what was sent and asked for, what was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, MessageId, Receipt};
use allstop_scope::{Scope, StopOrder};
use allstop_session::{
    FollowUp, NewMessage, SendError, Sent, Session, SessionEvent, StopTarget, Stopping,
    Subscription, Waited,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::aftermath::{SentMessage, SessionAftermath, Undone};
use super::{FOLLOW_UP, SessionPlay};
use crate::explore::aftermath::{Answered, Asked};
use crate::explore::point::{Point, Points};
use crate::explore::stage::Stage;
use crate::explore::way::Way;
use crate::explore::world::World;

/// A user's stop of a part, and the future of its receipt.
struct Ask {
    asked: Asked,
    stopping: Option<Stopping>,
    receipt: Option<BoxFuture<'static, Arc<Receipt>>>,
}

/// Somebody who sent a message and waits until all is idle.
struct Waiter {
    message: usize,
    waiting: Option<BoxFuture<'static, Result<Waited, SendError>>>,
    waited: Poll<Option<Waited>>,
}

type Undoing = BoxFuture<'static, Result<allstop_core::TurnNumber, String>>;

#[derive(Default)]
struct State {
    session: Option<Session>,
    asks: Vec<Ask>,
    sent: Vec<(SentMessage, Option<Sent>)>,
    waiters: Vec<Waiter>,
    undone: Vec<(Undone, Option<Undoing>)>,
    seen: Vec<(u64, SessionEvent)>,
}

/// What can be stopped, and what has been seen.
pub(crate) struct SessionLive {
    world: World,
    points: Points,
    root: Scope,
    messages: Arc<AtomicU64>,
    events: Mutex<Option<Subscription>>,
    state: Mutex<State>,
    planned: AtomicUsize,
    done: AtomicUsize,
}

impl SessionLive {
    pub(super) fn new(stage: &Stage, play: &SessionPlay) -> Arc<Self> {
        Arc::new(Self {
            world: stage.world().clone(),
            points: stage.points().clone(),
            root: stage.root().clone(),
            messages: Arc::clone(&play.messages),
            events: Mutex::default(),
            state: Mutex::default(),
            planned: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        })
    }

    pub(super) fn started(&self, session: &Session) {
        *self.events.lock() = Some(session.subscribe(None));
        self.state.lock().session = Some(session.clone());
    }

    /// Plans what a way does, at the points where it does it.
    pub(super) fn plan(self: &Arc<Self>, point: &Point, way: Way) {
        let user = Cause::new(CauseKind::User);
        let shutdown = || Cause::new(CauseKind::Shutdown);
        let at = |after: u32, act: Box<dyn FnOnce(&Self) -> bool + Send>| {
            self.planned.fetch_add(1, Ordering::Relaxed);
            let live = Arc::clone(self);
            self.points.at(point.number + after, move || {
                // What was shown before this was shown before.
                live.drain(&mut Context::from_waker(std::task::Waker::noop()));
                if act(&live) {
                    live.done.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        let after = way.second_after().unwrap_or_default();
        match way {
            Way::Stop(extent, cause) => {
                at(0, Box::new(move |live| live.ask(extent, Cause::new(cause))));
            }
            Way::Send(policy) => at(0, Box::new(move |live| live.follow_up(policy))),
            Way::Drop => at(0, Box::new(Self::waiters_go_away)),
            Way::Close => at(0, Box::new(Self::close)),
            Way::Undo => at(0, Box::new(Self::undo)),
            Way::Again(_) | Way::Wider(_) | Way::Force(_) => {
                let first = user.clone();
                at(0, Box::new(move |live| live.ask(Extent::Turn, first)));
                at(
                    after,
                    Box::new(move |live| match way {
                        Way::Wider(_) => live.ask(Extent::Process, shutdown()),
                        Way::Force(_) => live.force(),
                        _ => live.ask(Extent::Turn, user),
                    }),
                );
            }
            // Nobody's: sessions have no deadline of their own.
            Way::Deadline => {
                self.planned.fetch_add(1, Ordering::Relaxed);
            }
            Way::Kill => at(0, Box::new(|_| crate::explore::kill::this_process())),
        }
    }

    /// Whether everything that was planned could be done.
    pub(super) fn applied(&self) -> bool {
        self.planned.load(Ordering::Relaxed) == self.done.load(Ordering::Relaxed)
    }

    fn session(&self) -> Option<Session> {
        self.state.lock().session.clone()
    }

    /// Asks for a stop. `false`: there is nothing that it could be asked of.
    fn ask(&self, extent: Extent, cause: Cause) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let target = match extent {
            Extent::Process => {
                let stop = self.root.stop(StopOrder::new(extent, cause.clone()));
                let receipt = async move { stop.receipt().await }.boxed();
                self.asked(extent, cause, None, receipt);
                return true;
            }
            Extent::Call => self.world.running_call_id().map(StopTarget::Call),
            Extent::Turn => Some(StopTarget::Turn),
            Extent::TurnAndBackground => Some(StopTarget::TurnAndBackground),
            Extent::Subtree => {
                let works = session.background();
                let running = works.iter().find(|work| work.is_running());
                running.map(|work| StopTarget::Background(work.id.clone()))
            }
            Extent::Session => Some(StopTarget::Session),
        };
        let Some(target) = target else { return false };
        let stopping = session.stop(&target, cause.clone());
        let waits = stopping.clone();
        let receipt = async move { waits.receipt().await }.boxed();
        self.asked(extent, cause, Some(stopping), receipt);
        true
    }

    fn asked(
        &self,
        extent: Extent,
        cause: Cause,
        stopping: Option<Stopping>,
        receipt: BoxFuture<'static, Arc<Receipt>>,
    ) {
        let asked = Asked {
            extent,
            cause,
            point: self.points.newest(),
            accepted: self.world.now(),
            at: self.points.elapsed(),
            answer: None,
        };
        self.state.lock().asks.push(Ask {
            asked,
            stopping,
            receipt: Some(receipt),
        });
    }

    fn force(&self) -> bool {
        let first = self
            .state
            .lock()
            .asks
            .first()
            .map(|ask| ask.stopping.clone());
        let Some(Some(stopping)) = first else {
            return false;
        };
        stopping.force();
        true
    }

    fn close(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        // The first poll accepts it.
        let mut closing = async move { session.close().await }.boxed();
        let receipt = match closing.poll_unpin(&mut noop()) {
            Poll::Ready(receipt) => async move { receipt }.boxed(),
            Poll::Pending => closing,
        };
        let cause = Cause::new(CauseKind::Shutdown);
        self.asked(Extent::Session, cause, None, receipt);
        true
    }

    fn undo(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let asked = self.world.now();
        let undoing = async move { session.undo().await.map_err(|error| error.to_string()) };
        let undone = Undone {
            asked,
            answer: None,
        };
        let undoing = Some(undoing.boxed());
        self.state.lock().undone.push((undone, undoing));
        true
    }

    fn follow_up(&self, policy: FollowUp) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        self.send(&session, NewMessage::from(FOLLOW_UP).policy(policy));
        true
    }

    pub(super) fn send(&self, session: &Session, message: NewMessage) -> Option<Sent> {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let answer = session.send(message);
        let sent = SentMessage {
            id: answer.as_ref().ok().map(|sent| sent.id.clone()),
            text,
            policy,
            order: self.world.now(),
            point: self.points.newest(),
            admission: match &answer {
                Ok(sent) => Ok(Some(sent.admission)),
                Err(error) => Err(error.clone()),
            },
            outcome: None,
            waited: None,
            waiter_gone: false,
        };
        let answer = answer.ok();
        self.state.lock().sent.push((sent, answer.clone()));
        answer
    }

    /// Sends with a waiter. Its number.
    pub(super) fn wait(&self, session: &Session, message: NewMessage, limit: Duration) -> usize {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let session = session.clone();
        let before = self.messages.load(Ordering::Relaxed);
        let mut waiting = async move { session.send_and_wait(message, limit).await }.boxed();
        // The first poll sends it.
        let now = waiting.poll_unpin(&mut noop());
        let newest = self.messages.load(Ordering::Relaxed);
        let refused = match &now {
            Poll::Ready(Err(error)) => Some(error.clone()),
            _ => None,
        };
        let taken = refused.is_none() && newest > before;
        let sent = SentMessage {
            id: taken.then(|| MessageId::new(format!("m_{newest}"))),
            text,
            policy,
            order: self.world.now(),
            point: self.points.newest(),
            admission: refused.map_or(Ok(None), Err),
            outcome: None,
            waited: None,
            waiter_gone: false,
        };
        let mut state = self.state.lock();
        state.sent.push((sent, None));
        let message = state.sent.len() - 1;
        let (waiting, waited) = match now {
            Poll::Ready(waited) => (None, Poll::Ready(waited.ok())),
            Poll::Pending => (Some(waiting), Poll::Pending),
        };
        state.waiters.push(Waiter {
            message,
            waiting,
            waited,
        });
        state.waiters.len() - 1
    }

    pub(super) fn waited(&self, waiter: usize) -> Poll<Option<Waited>> {
        let state = self.state.lock();
        let waiter = state.waiters.get(waiter);
        waiter.map_or(Poll::Pending, |waiter| waiter.waited.clone())
    }

    fn waiters_go_away(&self) -> bool {
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        let State { waiters, sent, .. } = &mut *state;
        for waiter in waiters {
            if let Some(waiting) = waiter.waiting.take() {
                waiter.waited = Poll::Ready(None);
                if let Some((sent, _)) = sent.get_mut(waiter.message) {
                    sent.waiter_gone = true;
                }
                gone.push(waiting);
            }
        }
        drop(state);
        let any = !gone.is_empty();
        drop(gone);
        any
    }

    pub(super) fn has_seen(&self, wanted: &impl Fn(&SessionEvent) -> bool) -> bool {
        self.state
            .lock()
            .seen
            .iter()
            .any(|(_, event)| wanted(event))
    }

    /// Takes what the subscriber is given by now.
    fn drain(&self, cx: &mut Context<'_>) {
        let mut events = self.events.lock();
        let Some(subscription) = &mut *events else {
            return;
        };
        while let Poll::Ready(Ok(Some(event))) = Box::pin(subscription.next()).poll_unpin(cx) {
            let order = self.world.now();
            self.state.lock().seen.push((order, event));
        }
    }

    /// Looks at everything that somebody waits for.
    pub(super) fn look(&self, cx: &mut Context<'_>) {
        self.drain(cx);
        let mut state = self.state.lock();
        let State {
            asks,
            sent,
            waiters,
            undone,
            ..
        } = &mut *state;
        for Ask { asked, receipt, .. } in asks {
            if let Some(waiting) = receipt
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *receipt = None;
                asked.answer = Some(Answered {
                    receipt: answer,
                    order: self.world.now(),
                    at: self.points.elapsed(),
                });
            }
        }
        for waiter in waiters {
            if let Some(waiting) = &mut waiter.waiting
                && let Poll::Ready(waited) = waiting.poll_unpin(cx)
            {
                waiter.waiting = None;
                let waited = waited.ok();
                if let Some((message, handle)) = sent.get_mut(waiter.message) {
                    *handle = waited.as_ref().map(|waited| waited.sent.clone());
                    let now = self.world.now();
                    message.waited = waited.clone().map(|waited| (now, waited));
                }
                waiter.waited = Poll::Ready(waited);
            }
        }
        for (message, handle) in sent {
            if message.outcome.is_none()
                && let Some(outcome) = handle.as_ref().and_then(Sent::try_outcome)
            {
                message.outcome = Some((self.world.now(), outcome));
            }
        }
        for (undone, undoing) in undone {
            if let Some(waiting) = undoing
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *undoing = None;
                undone.answer = Some(answer);
            }
        }
    }

    /// Whether everybody who waits has been answered.
    pub(super) fn all_answered(&self) -> bool {
        let state = self.state.lock();
        let outcomes = state.sent.iter().all(|(message, _)| {
            message.outcome.is_some() || message.waiter_gone || message.admission.is_err()
        });
        let busy = state.session.as_ref().is_some_and(Session::is_busy);
        outcomes
            && !busy
            && state.asks.iter().all(|ask| ask.receipt.is_none())
            && state.undone.iter().all(|(_, undoing)| undoing.is_none())
            && state.waiters.iter().all(|waiter| waiter.waiting.is_none())
    }

    /// How many stops were asked for.
    pub(super) fn stops(&self) -> Vec<Asked> {
        let state = self.state.lock();
        state.asks.iter().map(|ask| ask.asked.clone()).collect()
    }

    /// Lets go of the session, and of everybody who waits.
    pub(super) fn let_go(&self) {
        drop(self.events.lock().take());
        let _all = std::mem::take(&mut *self.state.lock());
    }

    pub(super) fn seen(&self) -> SessionAftermath {
        let state = self.state.lock();
        SessionAftermath {
            sent: state.sent.iter().map(|(sent, _)| sent.clone()).collect(),
            events: state.seen.clone(),
            undone: state
                .undone
                .iter()
                .map(|(undone, _)| undone.clone())
                .collect(),
            history: None,
        }
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}
