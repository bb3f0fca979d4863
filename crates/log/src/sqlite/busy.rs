//! The wait for another process that holds a lock of the store.

use std::cell::Cell;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// Maximum time to wait while another process writes. This is much longer than the write of a group of appends, and
/// still acceptable for a user who waits.
pub(super) const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two checks whether the other process still holds its lock. One commit takes about this time.
pub(super) const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// Busy handler. SQLite calls it while another process holds the lock. The argument is the number of calls so far.
pub(super) fn wait_for_another(calls: i32) -> bool {
    thread_local! {
        static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    let since = if calls == 0 {
        now
    } else {
        SINCE.get().unwrap_or(now)
    };
    SINCE.set(Some(since));
    park_timeout(BUSY_PAUSE);
    now.duration_since(since) < BUSY_WAIT_MAX
}
