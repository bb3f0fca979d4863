//! The connections of one call, seen from outside.
//!
//! Invariants:
//! 1. A model registers with the probe before it opens anything; until it does the answer is `NotVerifiable`, never a
//!    guess.
//! 2. `Closed` is the kernel's word: none of the recorded sockets is in a state in which our side holds it open.
//! 3. An attempt to connect counts as open until its future has been destroyed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::kernel;

/// A dropped stream is closed by the connection's own task at its next poll. Half a second is a thousand times what
/// that takes, and still well inside the bound of a force.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(500);
/// Rounds that only yield: the connection's task needs one poll, which takes microseconds.
const YIELD_ROUNDS: u32 = 4;
/// The first sleep; the timer has no finer grain.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
/// The longest single sleep, so that the answer is never much older than the closing.
const SLEEP_MAX: Duration = Duration::from_millis(16);

/// What became of the connections of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// There was at least one, and the kernel shows none of them open any more.
    Closed,
    /// The answer had come whole, so the connection was given back: it is idle, and open for the next call.
    GivenBack,
    /// At least one is still open after the bound.
    StillOpen,
    /// This system, or this model, gives no way to tell.
    NotVerifiable,
    /// No connection was ever ready: the model has none, or the attempt was destroyed before it succeeded.
    NeverOpened,
}

/// A handle on the connections of one call. Make one before the call, pass a clone in the request, and ask
/// [`ConnectionProbe::closed`] after everything of the call has been dropped.
#[derive(Clone, Default)]
pub struct ConnectionProbe {
    watch: Arc<Mutex<Watch>>,
}

#[derive(Default)]
struct Watch {
    /// Whether a model has said anything about connections.
    registered: bool,
    /// The books of the clients that served the call: one per attempt.
    books: Vec<Arc<SocketBook>>,
    /// A connection was given back whole, so it is no longer this call's.
    returned: bool,
}

impl ConnectionProbe {
    /// Says that this call holds no connection: for models that need none.
    pub fn no_connection(&self) {
        self.watch.lock().registered = true;
    }

    /// Adds a client's book: whatever it opens from now on, and what it holds, counts for this call.
    pub(crate) fn watch(&self, book: Arc<SocketBook>) {
        let mut watch = self.watch.lock();
        watch.registered = true;
        watch.books.push(book);
    }

    /// Takes a client's book out again: its connection is idle and serves the next call.
    pub(crate) fn give_back(&self, book: &Arc<SocketBook>) {
        let mut watch = self.watch.lock();
        watch.returned = true;
        watch.books.retain(|held| !Arc::ptr_eq(held, book));
    }

    /// Waits, at most half a second, until the kernel shows no open connection of the call any more.
    ///
    /// Call it after the call's future and stream have been dropped: before that the answer is `StillOpen`.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it; ask again.
    pub async fn closed(&self) -> ConnectionState {
        let began = tokio::time::Instant::now();
        let mut round = 0;
        let mut sleep = FIRST_SLEEP;
        loop {
            let state = self.look();
            if state != ConnectionState::StillOpen || began.elapsed() >= CLOSE_WAIT_MAX {
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

    /// The state at this moment, without waiting.
    pub fn look(&self) -> ConnectionState {
        let now = Instant::now();
        let mut sockets = Vec::new();
        {
            let watch = self.watch.lock();
            if !watch.registered {
                return ConnectionState::NotVerifiable;
            }
            for book in &watch.books {
                let page = book.page.lock();
                if page.connecting > 0 {
                    return ConnectionState::StillOpen;
                }
                if page.unseen {
                    return ConnectionState::NotVerifiable;
                }
                sockets.extend_from_slice(&page.sockets);
            }
            if sockets.is_empty() {
                return if watch.returned {
                    ConnectionState::GivenBack
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
        let watch = self.watch.lock();
        f.debug_struct("ConnectionProbe")
            .field("registered", &watch.registered)
            .field("books", &watch.books)
            .finish_non_exhaustive()
    }
}

/// One TCP connection, by its two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SocketPair {
    /// Ours.
    pub(crate) local: SocketAddr,
    /// Theirs, or the proxy's.
    pub(crate) remote: SocketAddr,
}

/// Every connection that one HTTP client makes. The client serves one call at a time.
#[derive(Debug, Default)]
pub(crate) struct SocketBook {
    page: Mutex<Page>,
}

#[derive(Debug, Default)]
struct Page {
    connecting: usize,
    sockets: Vec<SocketPair>,
    /// A connection was made whose ends could not be read.
    unseen: bool,
}

impl SocketBook {
    /// An attempt begins; it counts as open until the guard is dropped.
    pub(crate) fn begin_connect(self: &Arc<Self>) -> ConnectGuard {
        self.page.lock().connecting += 1;
        ConnectGuard {
            book: Arc::clone(self),
        }
    }
}

/// One attempt to connect.
#[derive(Debug)]
#[must_use = "the attempt counts until this is dropped"]
pub(crate) struct ConnectGuard {
    book: Arc<SocketBook>,
}

impl ConnectGuard {
    /// The attempt succeeded; `None` where the ends are not known.
    pub(crate) fn connected(self, pair: Option<SocketPair>) {
        let mut page = self.book.page.lock();
        match pair {
            Some(pair) => page.sockets.push(pair),
            None => page.unseen = true,
        }
    }
}

impl Drop for ConnectGuard {
    fn drop(&mut self) {
        self.book.page.lock().connecting -= 1;
    }
}
