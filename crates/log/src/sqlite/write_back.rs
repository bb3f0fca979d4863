//! Writes the write-ahead log back into the file of the store.
//!
//! A copy of `store.db` contains only the commits that were written back, and a damaged log loses only the commits that
//! were not. A short run is over before its log is written back, so it needs no additional sync.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::busy::wait_for_another;

/// Time without a commit after which the log is written back. Most runs end earlier.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum time that a commit stays in the log alone, if the store is open and the log is not in use.
const AGE_MAX: Duration = Duration::from_mins(1);

const LOG_HEADER_LEN: u64 = 32;
const FRAME_HEADER_LEN: u64 = 24;

/// Time of the next write-back.
#[derive(Debug, Default)]
pub(super) struct WriteBackTimer {
    /// Times of the first and of the last commit since the last write-back.
    commits: Option<(Instant, Instant)>,
}

impl WriteBackTimer {
    pub(super) fn committed(&mut self, now: Instant) {
        let first = self.commits.map_or(now, |(first, _)| first);
        self.commits = Some((first, now));
    }

    /// `None` if every commit of this connection is written back.
    pub(super) fn due(&self) -> Option<Instant> {
        let (first, last) = self.commits?;
        Some((last + IDLE).min(first + AGE_MAX))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Sets the result of a write-back. If the log was in use, another attempt follows.
    pub(super) fn tried(&mut self, is_written: bool, now: Instant) {
        self.commits = (!is_written).then_some((now, now));
    }
}

/// Writes the log back and empties it. Returns false if another connection uses the log now.
pub(super) fn write_back(connection: &mut Connection) -> rusqlite::Result<bool> {
    // A reader of another process must not delay the appends of this process.
    connection.busy_handler(None::<fn(i32) -> bool>)?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, bool>(0)
    });
    connection.busy_handler(Some(wait_for_another))?;
    Ok(!busy?)
}

/// Length that the log must have at least, in bytes: its header and the frames that its index names (SQLite, "WAL-mode
/// File Format", 2). Writes nothing.
pub(super) fn log_len(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(match frames(connection)? {
        0 => 0,
        frames => LOG_HEADER_LEN + frames * (FRAME_HEADER_LEN + number(connection, PAGE_LEN, 0)?),
    })
}

/// Length that the file of the store must have at least, in bytes. While pages are in the log, only the first page has to
/// be in the file.
pub(super) fn main_len(connection: &Connection) -> rusqlite::Result<u64> {
    let page_len = number(connection, PAGE_LEN, 0)?;
    Ok(match frames(connection)? {
        0 => number(connection, "PRAGMA page_count", 0)? * page_len,
        _ => page_len,
    })
}

const PAGE_LEN: &str = "PRAGMA page_size";

/// Number of frames in the log.
fn frames(connection: &Connection) -> rusqlite::Result<u64> {
    number(connection, "PRAGMA wal_checkpoint(NOOP)", 1)
}

fn number(connection: &Connection, sql: &str, column: usize) -> rusqlite::Result<u64> {
    let found = connection.query_row(sql, [], |row| row.get::<_, i64>(column));
    Ok(u64::try_from(found?).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_written_back_when_idle_and_at_least_once_a_minute() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut timer = WriteBackTimer::default();
        assert_eq!(timer.due(), None);
        timer.committed(after(0));
        assert!(!timer.is_due(after(9)));
        assert!(timer.is_due(after(10)));
        for second in 1..60 {
            timer.committed(after(second));
            assert!(!timer.is_due(after(second)), "{second}");
        }
        assert!(timer.is_due(after(60)));
        timer.tried(false, after(60));
        assert!(!timer.is_due(after(69)) && timer.is_due(after(70)));
        timer.tried(true, after(70));
        assert_eq!(timer.due(), None);
    }
}
