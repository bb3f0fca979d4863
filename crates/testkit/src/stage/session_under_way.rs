//! A running session: the messages and waiters of its user, the events of its subscriber, and all work that can be
//! stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, MessageId, TurnNumber};
use allstop_scope::{Scope, StopRequest};
use allstop_session::{
    MessageHandle, NewMessage, SendError, Session, SessionEvent, SessionEventKind, SessionStop,
    StopTarget, Subscription, WaitResult,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::parts::PartWatch;
use super::planned_stops::{PlannedStops, StopReceipt, StoppableRun};
use crate::observe::{
    DeliveredFacts, DeliveredOutcome, DeliveryJournal, SentMessage, SessionObservation,
};
use crate::stop_method::StopMethod;

type Undoing = BoxFuture<'static, Option<TurnNumber>>;

#[derive(Default)]
struct SessionRunState {
    session: Option<Session>,
    /// The first stop. A later action can make this stop use force.
    first_stop: Option<SessionStop>,
    sent: Vec<(SentMessage, Option<MessageHandle>)>,
    waiters: Vec<IdleWaiter>,
    /// Turns to undo. Each entry has the answer, or the request that has no answer yet.
    undone: Vec<(Option<TurnNumber>, Option<Undoing>)>,
    seen: Vec<(u64, SessionEvent)>,
}

/// A running session.
pub(crate) struct SessionUnderWay {
    watch: PartWatch,
    root: Scope,
    stops: PlannedStops,
    messages: Arc<AtomicU64>,
    journal: Option<Arc<DeliveryJournal>>,
    events: Mutex<Option<Subscription>>,
    state: Mutex<SessionRunState>,
}

impl SessionUnderWay {
    pub(crate) fn new(
        watch: &PartWatch,
        root: &Scope,
        stops: PlannedStops,
        messages: &Arc<AtomicU64>,
        journal: Option<Arc<DeliveryJournal>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            watch: watch.clone(),
            root: root.clone(),
            stops,
            messages: Arc::clone(messages),
            journal,
            events: Mutex::default(),
            state: Mutex::default(),
        })
    }

    pub(crate) fn started(&self, session: &Session) {
        *self.events.lock() = Some(session.subscribe(None));
        self.state.lock().session = Some(session.clone());
    }

    fn session(&self) -> Option<Session> {
        self.state.lock().session.clone()
    }

    /// Drops the session and all waiters.
    pub(crate) fn clear(&self) {
        drop(self.events.lock().take());
        self.stops.clear();
        let _all = std::mem::take(&mut *self.state.lock());
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}

/// Text of the message that the driver sends, under each policy, while the session answers another message.
pub const FOLLOW_UP: &str = "the follow-up";

/// A user who sent a message and waits until the session is idle.
pub(super) struct IdleWaiter {
    pub(super) message: usize,
    pub(super) waiting: Option<BoxFuture<'static, Result<WaitResult, SendError>>>,
    pub(super) waited: Poll<Option<WaitResult>>,
}

impl SessionUnderWay {
    pub(crate) fn send(&self, session: &Session, message: NewMessage) -> Option<MessageHandle> {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let answer = session.send(message);
        let sent = SentMessage {
            id: answer.as_ref().ok().map(|sent| sent.id.clone()),
            text,
            policy,
            order: self.watch.witness.now(),
            point: self.watch.points.newest(),
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

    /// Sends a message with a waiter, and returns the number of the waiter.
    pub(crate) fn wait(&self, session: &Session, message: NewMessage, limit: Duration) -> usize {
        let text = Arc::clone(&message.text);
        let policy = message.policy.unwrap_or_else(|| session.policy());
        let session = session.clone();
        let before = self.messages.load(Ordering::Relaxed);
        let mut waiting = async move { session.send_and_wait(message, limit).await }.boxed();
        // The first poll sends the message.
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
            order: self.watch.witness.now(),
            point: self.watch.points.newest(),
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
        state.waiters.push(IdleWaiter {
            message,
            waiting,
            waited,
        });
        state.waiters.len() - 1
    }

    pub(crate) fn waited(&self, waiter: usize) -> Poll<Option<WaitResult>> {
        let state = self.state.lock();
        let waiter = state.waiters.get(waiter);
        waiter.map_or(Poll::Pending, |waiter| waiter.waited.clone())
    }

    pub(super) fn waiters_go_away(&self) -> bool {
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        let SessionRunState { waiters, sent, .. } = &mut *state;
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
}

impl SessionUnderWay {
    pub(crate) fn has_seen(&self, wanted: &impl Fn(&SessionEvent) -> bool) -> bool {
        self.state
            .lock()
            .seen
            .iter()
            .any(|(_, event)| wanted(event))
    }

    /// Takes the events that the subscriber has received by now.
    pub(super) fn drain(&self, cx: &mut Context<'_>) {
        let mut events = self.events.lock();
        let Some(subscription) = &mut *events else {
            return;
        };
        while let Poll::Ready(Ok(Some(event))) = Box::pin(subscription.next()).poll_unpin(cx) {
            let order = self.watch.witness.now();
            if let (Some(journal), SessionEventKind::Recorded { version, .. }) =
                (&self.journal, &event.kind)
            {
                journal.record(*version);
            }
            self.state.lock().seen.push((order, event));
        }
    }

    /// Polls all futures that the user waits for.
    pub(crate) fn poll_all(&self, cx: &mut Context<'_>) {
        self.drain(cx);
        self.stops.poll_answers(cx);
        let mut state = self.state.lock();
        let SessionRunState {
            sent,
            waiters,
            undone,
            ..
        } = &mut *state;
        for waiter in waiters {
            if let Some(waiting) = &mut waiter.waiting
                && let Poll::Ready(waited) = waiting.poll_unpin(cx)
            {
                waiter.waiting = None;
                let waited = waited.ok();
                if let Some((message, handle)) = sent.get_mut(waiter.message) {
                    *handle = waited.as_ref().map(|waited| waited.sent.clone());
                    let now = self.watch.witness.now();
                    message.waited = waited.clone().map(|waited| (now, waited));
                }
                waiter.waited = Poll::Ready(waited);
            }
        }
        for (message, handle) in sent {
            if message.outcome.is_none()
                && let Some(outcome) = handle.as_ref().and_then(MessageHandle::try_outcome)
            {
                if let (Some(journal), Some(id)) = (&self.journal, &message.id) {
                    journal.outcome(id, &outcome);
                }
                message.outcome = Some((self.watch.witness.now(), outcome));
            }
        }
        for (undone, undoing) in undone {
            if let Some(waiting) = undoing
                && let Poll::Ready(answer) = waiting.poll_unpin(cx)
            {
                *undoing = None;
                *undone = answer;
            }
        }
    }

    /// True if every waiter has its answer.
    pub(crate) fn all_answered(&self) -> bool {
        let state = self.state.lock();
        let outcomes = state.sent.iter().all(|(message, _)| {
            message.outcome.is_some() || message.waiter_gone || message.admission.is_err()
        });
        let busy = state.session.as_ref().is_some_and(Session::is_busy);
        outcomes
            && !busy
            && self.stops.all_answered()
            && state.undone.iter().all(|(_, undoing)| undoing.is_none())
            && state.waiters.iter().all(|waiter| waiter.waiting.is_none())
    }

    pub(crate) fn seen(&self) -> SessionObservation {
        let state = self.state.lock();
        SessionObservation {
            sent: state.sent.iter().map(|(sent, _)| sent.clone()).collect(),
            events: state.seen.clone(),
            undone: state
                .undone
                .iter()
                .filter_map(|(undone, _)| *undone)
                .collect(),
            history: None,
        }
    }

    /// Facts that were delivered to the user so far.
    pub(crate) fn delivered_facts(&self) -> DeliveredFacts {
        let state = self.state.lock();
        let versions = state.seen.iter().filter_map(|(_, event)| match event.kind {
            SessionEventKind::Recorded { version, .. } => Some(version.0),
            _ => None,
        });
        let outcomes = state.sent.iter().filter_map(|(message, _)| {
            let (_, outcome) = message.outcome.as_ref()?;
            Some(DeliveredOutcome::of(message.id.as_ref()?, outcome))
        });
        DeliveredFacts {
            newest_record: versions.max().unwrap_or_default(),
            outcomes: outcomes.collect(),
        }
    }
}

impl SessionUnderWay {
    fn receipt_of(
        &self,
        session: &Session,
        extent: Extent,
        cause: CauseKind,
    ) -> Option<StopReceipt> {
        let cause = Cause::new(cause);
        let target = match extent {
            Extent::Process => {
                let stop = self.root.stop(StopRequest::new(extent, cause));
                return Some(async move { stop.receipt().await }.boxed());
            }
            Extent::Call => StopTarget::Call(self.watch.witness.running_call()?.0),
            Extent::Turn => StopTarget::Turn,
            Extent::TurnAndBackground => StopTarget::TurnAndBackground,
            Extent::Subtree => {
                let works = session.background();
                let running = works.iter().find(|work| work.is_running())?;
                StopTarget::Background(running.id.clone())
            }
            Extent::Session => StopTarget::Session,
        };
        let stopping = session.stop(&target, cause);
        let first = stopping.clone();
        self.state.lock().first_stop.get_or_insert(first);
        Some(async move { stopping.receipt().await }.boxed())
    }
}

impl StoppableRun for SessionUnderWay {
    fn stops(&self) -> &PlannedStops {
        &self.stops
    }

    fn look_first(&self) {
        self.drain(&mut noop());
    }

    fn act(&self, method: StopMethod) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        match method {
            StopMethod::Stop(extent, cause) => {
                let receipt = || self.receipt_of(&session, extent, cause);
                self.stops.ask(extent, Cause::new(cause), receipt)
            }
            StopMethod::Force(_) => {
                let first = self.state.lock().first_stop.clone();
                first.as_ref().map(SessionStop::force).is_some()
            }
            StopMethod::Drop => self.waiters_go_away(),
            StopMethod::Send(policy) => {
                self.send(&session, NewMessage::from(FOLLOW_UP).policy(policy));
                true
            }
            StopMethod::Close => self.close(session),
            StopMethod::Undo => self.undo(session),
            _ => false,
        }
    }
}

impl SessionUnderWay {
    fn close(&self, session: Session) -> bool {
        let close = || {
            // The first poll requests the close.
            let mut closing = async move { session.close().await }.boxed();
            Some(match closing.poll_unpin(&mut noop()) {
                Poll::Ready(receipt) => async move { receipt }.boxed(),
                Poll::Pending => closing,
            })
        };
        let cause = Cause::new(CauseKind::Shutdown);
        self.stops.ask(Extent::Session, cause, close)
    }

    fn undo(&self, session: Session) -> bool {
        let undoing = async move { session.undo().await.ok() }.boxed();
        self.state.lock().undone.push((None, Some(undoing)));
        true
    }
}
