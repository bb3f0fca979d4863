//! Registry of the open sessions of a system: the only such list, used by every command and protocol.
//!
//! [`Sessions`](crate::Sessions) enters each session that it opens. A session leaves the registry when it has ended, or
//! when its last handle is dropped. A server that opens and closes sessions by their ids reserves the id first.
//!
//! Invariants:
//! 1. An id has at most one reservation. While the reservation exists, and while a closed session writes its results,
//!    requests for the id wait, and later proceed in their order.
//! 2. A function that uses an open session runs under the lock of the registry, so no close begins meanwhile.
//! 3. A subscriber is called once with each open session.
//!
//! Lock order: the lock of the registry is acquired before the lock of a session. Dropping the last handle of a session
//! acquires the lock of the registry, so handles are dropped after that lock is released.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

use allstop_core::SessionId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::inner::SessionInner;
use crate::session::Session;

type OnOpen = Arc<dyn Fn(&Session) + Send + Sync>;

/// The open sessions of a system. Clones refer to the same registry.
#[derive(Clone, Default)]
pub struct SessionRegistry(Arc<Mutex<RegistryState>>);

#[derive(Default)]
struct RegistryState {
    slots: HashMap<SessionId, RegistrySlot>,
    subscribers: Vec<OnOpen>,
    /// Number of opened sessions so far.
    opened: u64,
}

#[derive(Default)]
struct RegistrySlot {
    entry: Option<RegistryEntry>,
    is_reserved: bool,
    waiting: VecDeque<Box<dyn ReservationWaiter>>,
}

struct RegistryEntry {
    /// Position in the order of the openings.
    number: u64,
    session: Weak<SessionInner>,
    /// Handle that keeps the session in the registry while it sleeps.
    kept: Option<Session>,
}

/// Exclusive right to open, close or delete a session. Dropping the reservation releases the right. Waiting requests
/// then use the session if it is open; otherwise the first waiting request gets the reservation.
#[derive(Debug)]
#[must_use = "a drop releases the reservation"]
pub struct SessionReservation {
    registry: SessionRegistry,
    id: SessionId,
}

/// Result of [`SessionRegistry::reserve`].
#[derive(Debug)]
pub enum ReserveResult<T> {
    /// The session is not open, and its id is now reserved.
    Reserved(SessionReservation),
    /// The session is open. Contains the result of the function that was called with the session.
    Open(T),
}

impl SessionRegistry {
    /// Returns the session with this id, even while it is being opened or closed.
    pub fn find(&self, id: &SessionId) -> Option<Session> {
        self.0.lock().slots.get(id)?.session()
    }

    /// Returns all sessions, in the order of their openings.
    pub fn list(&self) -> Vec<Session> {
        let mut open: Vec<_> = {
            let state = self.0.lock();
            let entries = state.slots.values().filter_map(|slot| slot.entry.as_ref());
            let open = entries.filter_map(|entry| Some((entry.number, entry.session()?)));
            open.collect()
        };
        open.sort_by_key(|(number, _)| *number);
        open.into_iter().map(|(_, session)| session).collect()
    }

    /// Calls a function with each open session, and with each session that is opened later, before the session's first
    /// message. The function must not wait.
    pub fn subscribe(&self, on_open: impl Fn(&Session) + Send + Sync + 'static) {
        let on_open: OnOpen = Arc::new(on_open);
        let open: Vec<_> = {
            let mut state = self.0.lock();
            state.subscribers.push(Arc::clone(&on_open));
            let slots = state.slots.values();
            slots.filter_map(RegistrySlot::session).collect()
        };
        for session in &open {
            on_open(session);
        }
    }

    /// Uses an open session, or reserves its id. The request has its place in the order of requests when this call
    /// returns; the future waits while the session is being opened or closed. `use_open` must neither wait nor call
    /// this registry.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub fn reserve<T, F>(
        &self,
        id: &SessionId,
        use_open: F,
    ) -> impl Future<Output = ReserveResult<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Session) -> T + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        let request = Box::new(ReserveRequest { tx, use_open });
        let mut state = self.0.lock();
        let slot = state.slots.entry(id.clone()).or_default();
        slot.waiting.push_back(request);
        drop(state);
        self.pass_on(id);
        let registry = self.clone();
        async move {
            let result = rx.await;
            drop(registry);
            result.expect("a request that waits keeps its sender")
        }
    }

    /// Reserves an open session for its close, if `is_chosen` returns true. `None` if the session is not open, or is
    /// reserved. `is_chosen` must neither wait nor call this registry.
    pub fn reserve_open(
        &self,
        id: &SessionId,
        is_chosen: impl FnOnce(&Session) -> bool,
    ) -> Option<(Session, SessionReservation)> {
        let session;
        let mut state = self.0.lock();
        let slot = state.slots.get_mut(id)?;
        session = slot.session()?;
        if slot.is_reserved || !is_chosen(&session) {
            return None;
        }
        slot.is_reserved = true;
        drop(state);
        Some((session, self.reservation(id)))
    }

    /// Keeps an open session in the registry until it has ended, even if it sleeps and has no other handle.
    pub fn keep(&self, session: &Session) {
        let mut state = self.0.lock();
        let slot = state.slots.get_mut(session.id());
        let entry = slot.and_then(|slot| slot.entry.as_mut());
        if let Some(entry) = entry.filter(|entry| entry.is_of(&session.inner)) {
            entry.kept = Some(session.clone());
        }
    }

    /// If `kept_max` sessions are kept, reserves an idle one of them, so that the caller can close it. `None` if fewer
    /// are kept, if `needed` is open, or if no kept session is idle.
    pub fn reserve_idle(
        &self,
        kept_max: usize,
        needed: &SessionId,
        is_idle: impl Fn(&Session) -> bool,
    ) -> Option<(Session, SessionReservation)> {
        let mut state = self.0.lock();
        if state.slots.len() < kept_max || state.slots.contains_key(needed) {
            return None;
        }
        let kept = state.slots.values().filter(|slot| slot.kept().is_some());
        if kept.count() < kept_max {
            return None;
        }
        let mut slots = state.slots.values_mut();
        let session = slots.find_map(|slot| {
            let idle = slot
                .kept()
                .filter(|kept| !slot.is_reserved && is_idle(kept));
            let idle = idle.cloned();
            slot.is_reserved |= idle.is_some();
            idle
        })?;
        drop(state);
        let reservation = self.reservation(session.id());
        Some((session, reservation))
    }

    /// Adds an opened session.
    pub(crate) fn enter(&self, session: &Session) {
        let mut state = self.0.lock();
        state.opened += 1;
        let entry = RegistryEntry {
            number: state.opened,
            session: Arc::downgrade(&session.inner),
            kept: None,
        };
        let slot = state.slots.entry(session.id().clone()).or_default();
        let former = slot.entry.replace(entry);
        let subscribers = state.subscribers.clone();
        drop(state);
        drop(former);
        for on_open in subscribers {
            on_open(session);
        }
    }

    /// Removes a session that has ended, or that has no handle.
    pub(crate) fn leave(&self, session: &SessionInner) {
        let mut state = self.0.lock();
        let slot = state.slots.get_mut(&session.id);
        let left = slot.and_then(|slot| slot.entry.take_if(|entry| entry.is_of(session)));
        drop(state);
        drop(left);
        self.pass_on(&session.id);
    }

    /// Lets the waiting requests for an id proceed, unless the id is reserved or its session is being closed.
    fn pass_on(&self, id: &SessionId) {
        let session;
        let mut state = self.0.lock();
        let Some(slot) = state.slots.get_mut(id).filter(|slot| !slot.is_reserved) else {
            return;
        };
        session = slot.session();
        match &session {
            // The requests proceed after the end of this session.
            Some(session) if session.is_closed() => {}
            Some(session) => {
                for request in slot.waiting.drain(..) {
                    request.use_open(session);
                }
            }
            None => {
                while let Some(request) = slot.waiting.pop_front() {
                    if !request.is_withdrawn() {
                        slot.is_reserved = true;
                        drop(state);
                        request.reserved(self.reservation(id));
                        return;
                    }
                }
                state.slots.remove(id);
            }
        }
    }

    fn reservation(&self, id: &SessionId) -> SessionReservation {
        SessionReservation {
            registry: self.clone(),
            id: id.clone(),
        }
    }
}

impl RegistrySlot {
    fn session(&self) -> Option<Session> {
        self.entry.as_ref()?.session()
    }

    fn kept(&self) -> Option<&Session> {
        self.entry.as_ref()?.kept.as_ref()
    }
}

impl RegistryEntry {
    fn session(&self) -> Option<Session> {
        let inner = self.session.upgrade()?;
        Some(Session { inner })
    }

    fn is_of(&self, session: &SessionInner) -> bool {
        std::ptr::eq(self.session.as_ptr(), session)
    }
}

impl SessionReservation {
    /// The reserved id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        let mut state = self.registry.0.lock();
        if let Some(slot) = state.slots.get_mut(&self.id) {
            slot.is_reserved = false;
        }
        drop(state);
        self.registry.pass_on(&self.id);
    }
}

/// A request that waits for an id.
trait ReservationWaiter: Send {
    /// True if the future of the request was dropped.
    fn is_withdrawn(&self) -> bool;

    fn use_open(self: Box<Self>, session: &Session);

    fn reserved(self: Box<Self>, reservation: SessionReservation);
}

struct ReserveRequest<T, F> {
    tx: oneshot::Sender<ReserveResult<T>>,
    use_open: F,
}

impl<T: Send, F: FnOnce(&Session) -> T + Send> ReservationWaiter for ReserveRequest<T, F> {
    fn is_withdrawn(&self) -> bool {
        self.tx.is_closed()
    }

    fn use_open(self: Box<Self>, session: &Session) {
        if !self.is_withdrawn() {
            let result = (self.use_open)(session);
            drop(self.tx.send(ReserveResult::Open(result)));
        }
    }

    fn reserved(self: Box<Self>, reservation: SessionReservation) {
        // If the request was withdrawn just now, the reservation passes to the next request.
        drop(self.tx.send(ReserveResult::Reserved(reservation)));
    }
}

impl fmt::Debug for SessionRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.lock().slots.len();
        f.debug_struct("SessionRegistry")
            .field("len", &len)
            .finish_non_exhaustive()
    }
}
