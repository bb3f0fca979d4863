//! Drivers: each driver plays runs, stops them, and passes its observations to the checkers. Drivers contain no rules
//! about correct runs.

pub mod by_kill;
pub mod by_moment;
pub mod by_point;
pub mod soak;

use allstop_core::SessionId;
use allstop_core::record::SessionRecord;
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, Version};

/// Reads every record of a session.
///
/// # Panics
/// Panics if the log cannot be read, or if it contains records that are not session records.
async fn read_all(log: &dyn Log, session: &SessionId) -> Vec<SessionRecord> {
    read_on(log, session, Vec::new()).await
}

/// Like [`read_all`], but continues after the records that were already read.
async fn read_on(
    log: &dyn Log,
    session: &SessionId,
    mut records: Vec<SessionRecord>,
) -> Vec<SessionRecord> {
    loop {
        let from = Version(records.len() as u64 + 1);
        let read = log.read(&stream_of(session), from, usize::MAX).await;
        let read = read.expect("the log can be read");
        if read.is_empty() {
            return records;
        }
        records.extend(read.iter().map(|(_, bytes)| {
            decode(bytes)
                .expect("a record can be read")
                .expect("and is of a known type")
        }));
    }
}
