//! Places for the connections of a server. A server under attack stays within its limits, because the connections that
//! matter least lose their places.
//!
//! Invariants:
//! 1. At most [`PlaceLimits::connections_max`] connections have a place. If all places are taken, a new connection gets
//!    the place of the oldest connection without an admitted request, else of the oldest connection that has no request
//!    in progress. If there is no such connection, the new one waits.
//! 2. At most [`PlaceLimits::unproven_max`] connections have had no admitted request.
//! 3. If clients do not take their responses, and the responses need more than [`PlaceLimits::unsent_bytes_max`], the
//!    connections whose clients have waited longest lose their places.
//!
//! A connection that loses its place is dropped by the accept loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Limits of a server's connections.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlaceLimits {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of connections that have had no admitted request.
    pub unproven_max: usize,
    /// Maximum size of the responses of one connection that its client has not taken, in bytes.
    pub connection_unsent_bytes_max: usize,
    /// Maximum size of the responses of all connections that the clients have not taken, in bytes.
    pub unsent_bytes_max: usize,
    /// Time in which a client must take a part of a response. The time for a large part is longer:
    /// [`PlaceLimits::bytes_per_s_min`] applies.
    pub stall_time_max: Duration,
    /// Speed at which a client must be able to take a part of a response, in bytes per second.
    pub bytes_per_s_min: u32,
}

impl PlaceLimits {
    /// Only a maximum number of connections.
    pub const fn of_connections(connections_max: usize) -> Self {
        Self {
            connections_max,
            unproven_max: connections_max,
            // A large page of tasks has 4 MiB, and a client may ask for some of them at once.
            connection_unsent_bytes_max: 16 * 1024 * 1024,
            // This is less than the memory of the smallest machines in use.
            unsent_bytes_max: 64 * 1024 * 1024,
            // The time is as long as the time for the head of a request.
            stall_time_max: Duration::from_secs(30),
            // A slow mobile network has this speed.
            bytes_per_s_min: 16 * 1024,
        }
    }

    /// Sets the maximum number of connections.
    #[must_use]
    pub const fn connections_max(mut self, connections_max: usize) -> Self {
        self.connections_max = connections_max;
        self
    }

    /// Sets the maximum number of connections that have had no admitted request.
    #[must_use]
    pub const fn unproven_max(mut self, unproven_max: usize) -> Self {
        self.unproven_max = unproven_max;
        self
    }

    /// Sets the maximum size of the responses of one connection that its client has not taken, in bytes.
    #[must_use]
    pub const fn connection_unsent_bytes_max(mut self, connection_unsent_bytes_max: usize) -> Self {
        self.connection_unsent_bytes_max = connection_unsent_bytes_max;
        self
    }

    /// Sets the maximum size of the responses of all connections that the clients have not taken, in bytes.
    #[must_use]
    pub const fn unsent_bytes_max(mut self, unsent_bytes_max: usize) -> Self {
        self.unsent_bytes_max = unsent_bytes_max;
        self
    }

    /// Sets the time in which a client must take a part of a response.
    #[must_use]
    pub const fn stall_time_max(mut self, stall_time_max: Duration) -> Self {
        self.stall_time_max = stall_time_max;
        self
    }

    /// Sets the speed at which a client must be able to take a part of a response, in bytes per second.
    #[must_use]
    pub const fn bytes_per_s_min(mut self, bytes_per_s_min: u32) -> Self {
        self.bytes_per_s_min = bytes_per_s_min;
        self
    }
}

/// The places of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Places(Arc<PlacesInner>);

#[derive(Debug)]
struct PlacesInner {
    limits: PlaceLimits,
    table: Mutex<Table>,
    unproven: AtomicUsize,
    unsent_bytes: AtomicUsize,
    /// True while a new connection waits for a place.
    has_waiter: AtomicBool,
    /// Notified when a place may have become free.
    freed: Notify,
}

/// The connections by age: an older connection has a lower number.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Arc<PlaceState>>,
}

#[derive(Debug, Default)]
struct PlaceState {
    is_proven: AtomicBool,
    is_busy: AtomicBool,
    unsent: Mutex<Unsent>,
    /// Notified when the first bytes are held.
    has_unsent: Notify,
    lost: CancellationToken,
}

/// Parts of responses that the client has not taken.
#[derive(Debug, Default)]
struct Unsent {
    next: u64,
    bytes: usize,
    parts: BTreeMap<u64, UnsentPart>,
}

#[derive(Debug)]
struct UnsentPart {
    since: Instant,
    bytes: usize,
}

/// The place of one connection. Clones share it.
#[derive(Debug, Clone)]
pub struct Place {
    places: Places,
    state: Arc<PlaceState>,
}

/// Frees the place on drop.
#[derive(Debug)]
#[must_use = "the place is free when this value is dropped"]
pub struct PlaceGuard {
    place: Place,
    number: u64,
}

/// A part of a response that counts as unsent until this value is dropped.
#[derive(Debug)]
#[must_use = "the bytes count until this value is dropped"]
pub struct UnsentBytes {
    place: Place,
    number: u64,
}

/// The client of the connection has too many responses that it does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyUnsentBytes;

impl Places {
    /// Creates free places.
    pub fn new(limits: PlaceLimits) -> Self {
        Self(Arc::new(PlacesInner {
            limits,
            table: Mutex::default(),
            unproven: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            has_waiter: AtomicBool::new(false),
            freed: Notify::new(),
        }))
    }

    /// Takes a place for a new connection. If all places are taken, evicts a connection or waits.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn take(&self) -> PlaceGuard {
        loop {
            // The flag is set before the places are looked at. A place that becomes free later is therefore notified.
            self.0.has_waiter.store(true, Ordering::SeqCst);
            if let Some(guard) = self.try_take() {
                return guard;
            }
            self.0.freed.notified().await;
        }
    }

    fn try_take(&self) -> Option<PlaceGuard> {
        let inner = &self.0;
        let mut table = inner.table.lock();
        if table.taken.len() >= inner.limits.connections_max {
            table.evict_for_a_new_one();
            return None;
        }
        let number = table.next;
        table.next += 1;
        let state = Arc::<PlaceState>::default();
        table.taken.insert(number, Arc::clone(&state));
        inner.has_waiter.store(false, Ordering::SeqCst);
        if inner.unproven.fetch_add(1, Ordering::SeqCst) >= inner.limits.unproven_max {
            table.evict_unproven(inner.limits.unproven_max);
        }
        let place = Place {
            places: self.clone(),
            state,
        };
        Some(PlaceGuard { place, number })
    }

    fn place_may_be_free(&self) {
        if self.0.has_waiter.load(Ordering::SeqCst) {
            self.0.freed.notify_one();
        }
    }

    /// Evicts the connections whose clients have waited longest, until the others fit into the limit.
    fn evict_stalled(&self) {
        let table = self.0.table.lock();
        let mut holders: Vec<(Instant, usize, &PlaceState)> = table
            .remaining()
            .filter_map(|state| {
                let unsent = state.unsent.lock();
                let (_number, first) = unsent.parts.first_key_value()?;
                Some((first.since, unsent.bytes, &**state))
            })
            .collect();
        holders.sort_unstable_by_key(|(since, ..)| *since);
        let mut bytes: usize = holders.iter().map(|(_, bytes, _)| bytes).sum();
        for (_since, of_this, state) in holders {
            if bytes <= self.0.limits.unsent_bytes_max {
                return;
            }
            state.lost.cancel();
            bytes -= of_this;
        }
    }
}

impl Table {
    /// Connections that have not lost their place, the oldest first.
    fn remaining(&self) -> impl Iterator<Item = &Arc<PlaceState>> {
        self.taken
            .values()
            .filter(|state| !state.lost.is_cancelled())
    }

    /// Evicts the oldest connections without an admitted request, until at most `max` of them remain.
    fn evict_unproven(&self, max: usize) {
        let remaining = self.remaining();
        let unproven: Vec<_> = remaining.filter(|state| !state.is_proven()).collect();
        for oldest in unproven.iter().take(unproven.len().saturating_sub(max)) {
            oldest.lost.cancel();
        }
    }

    /// Evicts one connection, unless an evicted connection will free its place soon.
    fn evict_for_a_new_one(&self) {
        if self.taken.values().any(|state| state.lost.is_cancelled()) {
            return;
        }
        let unproven = self.remaining().find(|state| !state.is_proven());
        let idle = || {
            self.remaining()
                .find(|state| !state.is_busy.load(Ordering::SeqCst))
        };
        if let Some(state) = unproven.or_else(idle) {
            state.lost.cancel();
        }
    }
}

impl PlaceState {
    fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::SeqCst)
    }
}

impl Place {
    /// Marks that a request of the connection was admitted.
    pub fn prove(&self) {
        if !self.state.is_proven.swap(true, Ordering::SeqCst) {
            self.places.0.unproven.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sets whether the connection has a request in progress.
    pub fn set_busy(&self, is_busy: bool) {
        self.state.is_busy.store(is_busy, Ordering::SeqCst);
        if !is_busy {
            self.places.place_may_be_free();
        }
    }

    /// Counts these bytes of a response as unsent.
    ///
    /// # Errors
    /// If the connection has too many of them. Nothing is counted then.
    pub fn hold(&self, bytes: usize) -> Result<UnsentBytes, TooManyUnsentBytes> {
        let inner = &self.places.0;
        let number = {
            let mut unsent = self.state.unsent.lock();
            // The first part may have any size.
            let is_full = unsent.bytes + bytes > inner.limits.connection_unsent_bytes_max;
            if is_full && unsent.bytes > 0 {
                return Err(TooManyUnsentBytes);
            }
            unsent.add(bytes)
        };
        self.state.has_unsent.notify_one();
        let before = inner.unsent_bytes.fetch_add(bytes, Ordering::SeqCst);
        if before + bytes > inner.limits.unsent_bytes_max {
            self.places.evict_stalled();
        }
        Ok(UnsentBytes {
            place: self.clone(),
            number,
        })
    }

    /// Completes when the client does not take a part of a response in its time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stalled(&self) {
        loop {
            let deadline = self.state.unsent.lock().deadline(&self.places.0.limits);
            match deadline {
                None => self.state.has_unsent.notified().await,
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => sleep_until(deadline).await,
            }
        }
    }

    /// Completes when the connection has lost its place.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        self.state.lost.cancelled().await;
    }
}

impl PlaceGuard {
    /// The place.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        let Place { places, state } = &self.place;
        places.0.table.lock().taken.remove(&self.number);
        if !state.is_proven.swap(true, Ordering::SeqCst) {
            places.0.unproven.fetch_sub(1, Ordering::SeqCst);
        }
        places.place_may_be_free();
    }
}

impl Unsent {
    fn add(&mut self, bytes: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        let since = Instant::now();
        self.parts.insert(number, UnsentPart { since, bytes });
        number
    }

    /// The earliest deadline of all parts.
    fn deadline(&self, limits: &PlaceLimits) -> Option<Instant> {
        let rate = f64::from(limits.bytes_per_s_min.max(1));
        let deadlines = self.parts.values().map(|part| {
            let bytes = u32::try_from(part.bytes).unwrap_or(u32::MAX);
            part.since + limits.stall_time_max + Duration::from_secs_f64(f64::from(bytes) / rate)
        });
        deadlines.min()
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        let mut unsent = self.place.state.unsent.lock();
        if let Some(part) = unsent.parts.remove(&self.number) {
            unsent.bytes -= part.bytes;
            let all = &self.place.places.0.unsent_bytes;
            all.fetch_sub(part.bytes, Ordering::SeqCst);
        }
    }
}
