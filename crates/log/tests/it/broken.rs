//! Logs with one fault each. The conformance suite must reject each of them.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use allstop_log::{
    AppendError, AppendId, Log, LogError, LogFuture, LogWrapper, MemoryLog, RecordBytes,
    StreamName, TAIL_POLL_MS, Version, conformance,
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogDefect {
    None,
    /// An append wakes one tail. The others notice the record at their next poll.
    WakesOneTail,
    /// A tail registers for the notification some time after its read.
    LosesWakeUp,
    /// The store remembers the ids of appends after the deletion of their stream.
    KeepsAppendIds,
}

/// A log in memory with a defect.
#[derive(Debug, Clone)]
struct BrokenLog {
    inner: MemoryLog,
    defect: LogDefect,
    grown: Arc<Notify>,
    ids: Arc<Mutex<HashMap<(StreamName, AppendId), Version>>>,
}

impl BrokenLog {
    fn with(defect: LogDefect) -> Self {
        Self {
            inner: MemoryLog::new(),
            defect,
            grown: Arc::default(),
            ids: Arc::default(),
        }
    }
}

impl LogWrapper for BrokenLog {
    fn inner(&self) -> &dyn Log {
        &self.inner
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let (log, stream) = (self.clone(), stream.clone());
        LogFuture::waiting(async move {
            let known = log.ids.lock().get(&(stream.clone(), id)).copied();
            if let Some(version) = known.filter(|_| log.defect == LogDefect::KeepsAppendIds) {
                return Ok(version);
            }
            let version = log.inner.append(&stream, expected, id, records).await?;
            log.ids.lock().insert((stream, id), version);
            match log.defect {
                LogDefect::WakesOneTail => log.grown.notify_one(),
                _ => log.grown.notify_waiters(),
            }
            Ok(version)
        })
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (log, stream) = (self.clone(), stream.clone());
        LogFuture::waiting(async move {
            loop {
                let early = log.grown.notified();
                let records = log.inner.read(&stream, from, limit).await?;
                if !records.is_empty() || limit == 0 {
                    return Ok(records);
                }
                let grown = if log.defect == LogDefect::LosesWakeUp {
                    tokio::task::yield_now().await;
                    log.grown.notified()
                } else {
                    early
                };
                // Records of other processes are found by a poll.
                let _late = timeout(Duration::from_millis(TAIL_POLL_MS), grown).await;
            }
        })
    }
}

/// Names of the checks that reject a log with this defect. A check rejects a log with a panic.
async fn rejected_by(defect: LogDefect) -> Vec<&'static str> {
    let mut rejecting = Vec::new();
    macro_rules! run {
        ($($check:ident,)+) => {$(
            let log = BrokenLog::with(defect);
            let checked = AssertUnwindSafe(conformance::$check(&log)).catch_unwind().await;
            if checked.is_err() {
                rejecting.push(stringify!($check));
            }
        )+};
    }
    run!(
        numbers_are_dense_and_records_come_back,
        of_writers_that_expect_the_same_version_one_wins,
        a_version_that_is_not_there_yet_conflicts,
        a_repeated_append_writes_nothing,
        an_empty_append_changes_nothing,
        reads_are_bounded_and_go_on,
        a_stream_among_others_is_read_in_parts,
        a_tail_waits_for_the_next_record,
        one_append_ends_all_waiting_tails_at_once,
        a_tail_misses_no_append,
        a_deleted_stream_begins_again,
        append_ids_end_with_their_stream,
        unchanged_streams_are_deleted_together,
        a_dropped_append_is_whole_or_not_there,
        many_writers_on_many_streams_mix_nothing,
    );
    rejecting
}

#[tokio::test]
async fn suite_rejects_each_defect() {
    for (defect, checks) in [
        (LogDefect::None, &[][..]),
        (
            LogDefect::WakesOneTail,
            &["one_append_ends_all_waiting_tails_at_once"],
        ),
        (
            LogDefect::LosesWakeUp,
            &[
                "one_append_ends_all_waiting_tails_at_once",
                "a_tail_misses_no_append",
            ],
        ),
        (
            LogDefect::KeepsAppendIds,
            &["append_ids_end_with_their_stream"],
        ),
    ] {
        assert_eq!(rejected_by(defect).await, checks, "{defect:?}");
    }
}
