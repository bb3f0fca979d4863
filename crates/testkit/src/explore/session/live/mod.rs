//! The run of a session while it goes on: what was sent and asked for, what was seen.

mod asks;
mod look;
mod messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;

use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::Scope;
use allstop_session::{Sent, Session, SessionEvent, Subscription};
use parking_lot::Mutex;

use super::SessionPlay;
use super::aftermath::{SentMessage, Undone};
use crate::explore::kill::Notebook;
use crate::explore::point::{Point, Points};
use crate::explore::stage::Stage;
use crate::explore::store::FailingStore;
use crate::explore::way::Way;
use crate::explore::world::World;

use asks::{Ask, Undoing};
use messages::Waiter;

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
    store: Arc<FailingStore>,
    messages: Arc<AtomicU64>,
    told: Option<Arc<Notebook>>,
    events: Mutex<Option<Subscription>>,
    state: Mutex<State>,
    planned: AtomicUsize,
    done: AtomicUsize,
    impossible: AtomicBool,
}

impl SessionLive {
    pub(super) fn new(stage: &Stage, play: &SessionPlay, told: Option<Arc<Notebook>>) -> Arc<Self> {
        Arc::new(Self {
            world: stage.world().clone(),
            points: stage.points().clone(),
            root: stage.root().clone(),
            store: Arc::clone(stage.store()),
            messages: Arc::clone(&play.messages),
            told,
            events: Mutex::default(),
            state: Mutex::default(),
            planned: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            impossible: AtomicBool::new(false),
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
                } else {
                    live.impossible.store(true, Ordering::Relaxed);
                }
            });
        };
        let after = way.second_after().unwrap_or_default();
        match way {
            Way::Stop(extent, cause) => {
                at(0, Box::new(move |live| live.ask(extent, Cause::new(cause))));
            }
            Way::Store(fault) => at(
                0,
                Box::new(move |live| {
                    live.store.fail(fault);
                    !fault.has_stop() || live.ask(Extent::Turn, user)
                }),
            ),
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

    /// Whether something could not be done: the rest of the run is of no use.
    pub(super) fn is_impossible(&self) -> bool {
        self.impossible.load(Ordering::Relaxed)
    }

    /// Whether everything that was planned could be done.
    pub(super) fn applied(&self) -> bool {
        self.planned.load(Ordering::Relaxed) == self.done.load(Ordering::Relaxed)
    }

    fn session(&self) -> Option<Session> {
        self.state.lock().session.clone()
    }

    /// Lets go of the session, and of everybody who waits.
    pub(super) fn let_go(&self) {
        drop(self.events.lock().take());
        let _all = std::mem::take(&mut *self.state.lock());
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}
