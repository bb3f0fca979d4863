//! A session under way: messages and waiters of its user, events of its subscriber, and everything that can be stopped.

mod look;
mod messages;
mod stops;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Context;

use allstop_core::TurnNumber;
use allstop_scope::Scope;
use allstop_session::{MessageHandle, Session, SessionEvent, SessionStop, Subscription};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::parts::PartWatch;
use super::planned_stops::PlannedStops;
use crate::observe::{SentMessage, ToldNotebook, UndoneTurn};
use messages::IdleWaiter;

pub use messages::FOLLOW_UP;

type Undoing = BoxFuture<'static, Result<TurnNumber, String>>;

#[derive(Default)]
struct SessionRunState {
    session: Option<Session>,
    /// The first stop that can be forced.
    first_stop: Option<SessionStop>,
    sent: Vec<(SentMessage, Option<MessageHandle>)>,
    waiters: Vec<IdleWaiter>,
    undone: Vec<(UndoneTurn, Option<Undoing>)>,
    seen: Vec<(u64, SessionEvent)>,
}

/// A session under way.
pub(crate) struct SessionUnderWay {
    watch: PartWatch,
    root: Scope,
    stops: PlannedStops,
    messages: Arc<AtomicU64>,
    told: Option<Arc<ToldNotebook>>,
    events: Mutex<Option<Subscription>>,
    state: Mutex<SessionRunState>,
}

impl SessionUnderWay {
    pub(crate) fn new(
        watch: &PartWatch,
        root: &Scope,
        stops: PlannedStops,
        messages: &Arc<AtomicU64>,
        told: Option<Arc<ToldNotebook>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            watch: watch.clone(),
            root: root.clone(),
            stops,
            messages: Arc::clone(messages),
            told,
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

    /// Drops the session, and everybody who waits.
    pub(crate) fn clear(&self) {
        drop(self.events.lock().take());
        self.stops.clear();
        let _all = std::mem::take(&mut *self.state.lock());
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}
