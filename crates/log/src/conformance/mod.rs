//! Checks that an implementation of [`Log`] follows the rules of [`Log`].
//!
//! [`log_conformance!`](crate::log_conformance) creates a test of each check for one kind of log. The expression in the
//! call opens a new log. If another value must exist as long as the log, for example a temporary folder, the expression
//! also returns this value:
//!
//! ```
//! # mod tests {
//! allstop_log::log_conformance!(memory, async { (allstop_log::MemoryLog::new(), ()) });
//! # }
//! ```
//!
//! A check panics if the log violates a rule of [`Log`].

mod appends;
mod locks;
mod reads;
mod tails;

use crate::{AppendId, LockAttempt, Log, RecordBytes, StreamLock, StreamName, Version};

pub use appends::*;
pub use locks::*;
pub use reads::*;
pub use tails::*;

/// Creates a module with one test for each check.
#[macro_export]
macro_rules! log_conformance {
    ($name:ident, $open:expr) => {
        $crate::log_conformance!($name, $open;
            numbers_are_dense_and_records_come_back,
            of_writers_that_expect_the_same_version_one_wins,
            a_version_that_is_not_there_yet_conflicts,
            a_repeated_append_writes_nothing,
            an_empty_append_changes_nothing,
            reads_are_bounded_and_go_on,
            a_stream_among_others_is_read_in_parts,
            streams_are_listed_by_prefix,
            streams_are_listed_by_their_last_append,
            a_tail_waits_for_the_next_record,
            one_append_ends_all_waiting_tails_at_once,
            a_tail_misses_no_append,
            a_lock_is_held_by_one,
            a_deleted_stream_begins_again,
            append_ids_end_with_their_stream,
            unchanged_streams_are_deleted_together,
            a_dropped_append_is_whole_or_not_there,
            many_writers_on_many_streams_mix_nothing,
        );
    };
    ($name:ident, $open:expr; $($check:ident,)+) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test]
                async fn $check() {
                    let (log, _kept) = $open.await;
                    $crate::conformance::$check(&log).await;
                }
            )+
        }
    };
}

fn stream(name: &str) -> StreamName {
    StreamName::new(name)
}

fn records<const N: usize>(texts: [&'static str; N]) -> Vec<RecordBytes> {
    texts.into_iter().map(RecordBytes::from).collect()
}

async fn append<const N: usize>(
    log: &dyn Log,
    name: &str,
    expected: u64,
    id: u128,
    texts: [&'static str; N],
) -> u64 {
    let answer = log
        .append(
            &stream(name),
            Version(expected),
            AppendId(id),
            records(texts),
        )
        .await;
    answer
        .expect("the append expects the version that the stream has")
        .0
}

async fn read(log: &dyn Log, name: &str, from: u64, limit: usize) -> Vec<(Version, RecordBytes)> {
    log.read(&stream(name), Version(from), limit)
        .await
        .expect("the log can be read")
}

async fn lock(log: &dyn Log, name: &str) -> StreamLock {
    match log
        .try_lock(&stream(name))
        .await
        .expect("locks can be asked for")
    {
        LockAttempt::Locked(lock) => lock,
        LockAttempt::HeldBy(owner) => panic!("the lock is free, not held by {owner:?}"),
    }
}
