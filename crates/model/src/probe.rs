//! Asks the kernel about the state of one model call's connections.
//!
//! Invariants:
//! 1. A model registers with the probe before it opens a connection. Before that, the state is `NotVerifiable`.
//! 2. `Closed` is a fact from the kernel: no recorded socket is in a state in which this process holds it open.
//! 3. A connection attempt counts as open until the future of the attempt has been destroyed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::kernel::{self, SocketPair};

/// Number of rounds that only yield to the runtime. The connection's task needs one poll, which takes microseconds.
const YIELD_ROUNDS: u32 = 4;
/// Length of the first sleep. This is the resolution of the timer.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
/// Maximum length of a single sleep. It is short, so that the probe notices the close soon after it has happened.
const SLEEP_MAX: Duration = Duration::from_millis(16);

/// State of a call's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The call had at least one connection, and the kernel shows no open connection of the call.
    Closed,
    /// The answer was complete, so the connection was returned to the pool. It is idle, and stays open for the next
    /// call.
    ReturnedToPool,
    /// At least one connection is still open after the maximum wait.
    StillOpen,
    /// Work outside of the future can no longer be observed, and may still run.
    Lost,
    /// The probe cannot verify the connections of this system or of this model.
    NotVerifiable,
    /// No connection was ever established. Either the model uses none, or the connection attempt was destroyed before
    /// it succeeded.
    NeverOpened,
}

/// Handle for the connections of one call. Create it before the call, and put a clone into the request. Call
/// [`ConnectionProbe::closed`] after the future and the stream of the call have been dropped.
#[derive(Clone, Default)]
pub struct ConnectionProbe {
    state: Arc<Mutex<ProbeState>>,
}

#[derive(Default)]
struct ProbeState {
    /// True if a model has registered its connections, or has registered that it uses no connection.
    registered: bool,
    /// Records of the clients that served the call, one for each attempt.
    records: Vec<Arc<SocketRecord>>,
    /// True if a connection was returned to the pool, so that the connection no longer belongs to this call.
    returned: bool,
}

impl ConnectionProbe {
    /// Registers that this call uses no connection.
    pub fn no_connection(&self) {
        self.state.lock().registered = true;
    }

    /// Begins work of the call outside of its future, such as a task of an interpreter. The call counts as open until the
    /// guard is dropped.
    pub fn begin_outside_work(&self) -> OutsideWork {
        let record = Arc::new(SocketRecord::default());
        self.add_record(Arc::clone(&record));
        OutsideWork {
            open: record.begin_connect(),
        }
    }

    /// Adds the record of a client. From now on, the present and future connections of the client count for this call.
    pub(crate) fn add_record(&self, record: Arc<SocketRecord>) {
        let mut state = self.state.lock();
        state.registered = true;
        state.records.push(record);
    }

    /// Removes the record of a client, because the connection of the client is now idle and serves the next call.
    pub(crate) fn remove_record(&self, record: &Arc<SocketRecord>) {
        let mut state = self.state.lock();
        state.returned = true;
        state.records.retain(|held| !Arc::ptr_eq(held, record));
    }

    /// Waits until the kernel shows no open connection of the call, for at most the time `max`.
    ///
    /// Call this method after the future and the stream of the call have been dropped. Before that, the result is
    /// `StillOpen`.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing changes. You can call the method again.
    pub async fn closed(&self, max: Duration) -> ConnectionState {
        let began = tokio::time::Instant::now();
        let mut round = 0;
        let mut sleep = FIRST_SLEEP;
        loop {
            let state = self.look();
            if state != ConnectionState::StillOpen || began.elapsed() >= max {
                return state;
            }
            round += 1;
            if round <= YIELD_ROUNDS {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(sleep).await;
                sleep = (sleep * 2).min(SLEEP_MAX);
            }
        }
    }

    /// The present state, without waiting.
    pub fn look(&self) -> ConnectionState {
        let now = Instant::now();
        let mut sockets = Vec::new();
        {
            let state = self.state.lock();
            if !state.registered {
                return ConnectionState::NotVerifiable;
            }
            for record in &state.records {
                let socket_state = record.state.lock();
                if socket_state.connecting > 0 {
                    return ConnectionState::StillOpen;
                }
                if socket_state.is_lost {
                    return ConnectionState::Lost;
                }
                if socket_state.unseen {
                    return ConnectionState::NotVerifiable;
                }
                sockets.extend_from_slice(&socket_state.sockets);
            }
            if sockets.is_empty() {
                return if state.returned {
                    ConnectionState::ReturnedToPool
                } else {
                    ConnectionState::NeverOpened
                };
            }
        }
        let mut known = true;
        for pair in &sockets {
            match kernel::is_open(pair, now) {
                Some(true) => return ConnectionState::StillOpen,
                Some(false) => {}
                None => known = false,
            }
        }
        if known {
            ConnectionState::Closed
        } else {
            ConnectionState::NotVerifiable
        }
    }
}

impl fmt::Debug for ConnectionProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("ConnectionProbe")
            .field("registered", &state.registered)
            .field("records", &state.records)
            .finish_non_exhaustive()
    }
}

/// Work of a model call outside of its future. Dropping the guard records the end of the work.
#[derive(Debug)]
#[must_use = "the work counts until this is dropped"]
pub struct OutsideWork {
    open: ConnectGuard,
}

impl OutsideWork {
    /// Records that the end of the work can no longer be observed. The state of the call is then `Lost`.
    pub fn lose(self) {
        self.open.record.state.lock().is_lost = true;
    }
}

/// Record of all connections of one HTTP client. The client serves only one call at a time.
#[derive(Debug, Default)]
pub(crate) struct SocketRecord {
    state: Mutex<SocketRecordState>,
}

#[derive(Debug, Default)]
struct SocketRecordState {
    connecting: usize,
    sockets: Vec<SocketPair>,
    /// True if the client had a connection whose addresses could not be read.
    unseen: bool,
    /// True if the end of this work can no longer be observed.
    is_lost: bool,
}

impl SocketRecord {
    /// Begins a connection attempt. The attempt counts as open until the guard is dropped.
    pub(crate) fn begin_connect(self: &Arc<Self>) -> ConnectGuard {
        self.state.lock().connecting += 1;
        ConnectGuard {
            record: Arc::clone(self),
        }
    }
}

#[derive(Debug)]
#[must_use = "the attempt counts until this is dropped"]
pub(crate) struct ConnectGuard {
    record: Arc<SocketRecord>,
}

impl ConnectGuard {
    /// Ends the attempt after the connection was established. `pair` is `None` if the addresses of the connection are
    /// unknown.
    pub(crate) fn connected(self, pair: Option<SocketPair>) {
        let mut state = self.record.state.lock();
        match pair {
            Some(pair) => state.sockets.push(pair),
            None => state.unseen = true,
        }
    }
}

impl Drop for ConnectGuard {
    fn drop(&mut self) {
        self.record.state.lock().connecting -= 1;
    }
}
