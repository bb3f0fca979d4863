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

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::poll;

use crate::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, StreamLock,
    StreamName, TAIL_POLL_MS, Version,
};

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

/// Records get the numbers 1, 2, 3 … and keep their bytes, even if the bytes are empty, long or binary.
pub async fn numbers_are_dense_and_records_come_back(log: &dyn Log) {
    let bulk: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let written = [
        RecordBytes::new(),
        vec![0, 255, b'\n', 0].into(),
        bulk.into(),
        "last".into(),
    ];
    assert_eq!(append(log, "s", 0, 1, ["first"]).await, 1);
    let answer = log
        .append(&stream("s"), Version(1), AppendId(2), written.to_vec())
        .await;
    assert_eq!(answer.expect("it expects the right version"), Version(5));
    let found = read(log, "s", 1, 100).await;
    let numbers: Vec<u64> = found.iter().map(|(number, _)| number.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert!(
        found.iter().skip(1).map(|(_, record)| record).eq(&written),
        "the records changed"
    );
}

/// If several writers expect the same version, one writer succeeds, and the others get a conflict with the present
/// version. A writer that continues from that version loses no record.
pub async fn of_writers_that_expect_the_same_version_one_wins(log: &dyn Log) {
    const WRITERS: u64 = 16;
    let (name, wins) = (stream("s"), async |writer: u64| {
        let (mut expected, mut tries) = (Version(0), 0);
        loop {
            tries += 1;
            let id = AppendId(u128::from(writer) << 64 | tries);
            let text = writer.to_string();
            match log
                .append(&stream("s"), expected, id, vec![text.into()])
                .await
            {
                Ok(version) => return version,
                Err(AppendError::Conflict { actual }) => {
                    assert!(actual > expected, "a conflict has a later version");
                    expected = actual;
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    let won: BTreeSet<_> = join_all((1..=WRITERS).map(wins))
        .await
        .into_iter()
        .collect();
    assert_eq!(
        won.len() as u64,
        WRITERS,
        "each writer won a different version"
    );
    let found = log
        .read(&name, Version(1), 100)
        .await
        .expect("the log can be read");
    let texts: BTreeSet<_> = found.iter().map(|(_, record)| record.clone()).collect();
    assert_eq!((found.len() as u64, texts.len() as u64), (WRITERS, WRITERS));
}

/// An append that expects a later version than the present one gets a conflict, and creates no stream.
pub async fn a_version_that_is_not_there_yet_conflicts(log: &dyn Log) {
    let ahead = |expected, id| {
        log.append(
            &stream("s"),
            Version(expected),
            AppendId(id),
            records(["x"]),
        )
    };
    assert!(matches!(
        ahead(1, 1).await,
        Err(AppendError::Conflict { actual: Version(0) })
    ));
    assert_eq!(log.list("").await.expect("the log can be listed"), []);
    append(log, "s", 0, 2, ["a"]).await;
    assert!(matches!(
        ahead(2, 3).await,
        Err(AppendError::Conflict { actual: Version(1) })
    ));
    assert!(matches!(
        ahead(u64::MAX, 4).await,
        Err(AppendError::Conflict { actual: Version(1) })
    ));
    assert!(matches!(
        ahead(0, 5).await,
        Err(AppendError::Conflict { actual: Version(1) })
    ));
}

/// An append that is repeated with the same id returns the first result and writes nothing, even after many other
/// appends.
pub async fn a_repeated_append_writes_nothing(log: &dyn Log) {
    assert_eq!(append(log, "s", 0, 1, ["a", "b"]).await, 2);
    assert_eq!(append(log, "s", 0, 1, ["a", "b"]).await, 2);
    assert_eq!(append(log, "s", 2, 2, ["c"]).await, 3);
    assert_eq!(append(log, "s", 3, 3, ["d", "e", "f"]).await, 6);
    assert_eq!(append(log, "s", 0, 1, ["a", "b"]).await, 2);
    assert_eq!(append(log, "s", 2, 2, ["c"]).await, 3);
    assert_eq!(append(log, "s", 3, 3, ["d", "e", "f"]).await, 6);
    assert_eq!(read(log, "s", 1, 100).await.len(), 6);
    // If two appends with the same id wait at the same time, they count as one append.
    let twice = [(); 2].map(|()| log.append(&stream("s"), Version(6), AppendId(4), records(["g"])));
    for answer in join_all(twice).await {
        assert_eq!(answer.expect("both are the same append"), Version(7));
    }
    assert_eq!(read(log, "s", 1, 100).await.len(), 7);
}

/// An append without records does not change the version.
pub async fn an_empty_append_changes_nothing(log: &dyn Log) {
    assert_eq!(append(log, "s", 0, 1, []).await, 0);
    append(log, "s", 0, 2, ["a"]).await;
    assert_eq!(append(log, "s", 1, 3, []).await, 1);
    let behind = log
        .append(&stream("s"), Version(0), AppendId(4), Vec::new())
        .await;
    assert!(matches!(
        behind,
        Err(AppendError::Conflict { actual: Version(1) })
    ));
    assert_eq!(read(log, "s", 1, 10).await.len(), 1);
}

/// A read starts at the first requested number and ends at its limit. The result is empty after the end of a stream,
/// and for an unknown stream.
pub async fn reads_are_bounded_and_go_on(log: &dyn Log) {
    append(log, "s", 0, 1, ["1", "2", "3", "4", "5"]).await;
    for (from, limit, numbers) in [
        (0, 2, vec![1, 2]),
        (1, 2, vec![1, 2]),
        (3, 2, vec![3, 4]),
        (5, 2, vec![5]),
        (6, 2, vec![]),
        (u64::MAX, 2, vec![]),
        (1, 0, vec![]),
        (1, usize::MAX, vec![1, 2, 3, 4, 5]),
    ] {
        let found = read(log, "s", from, limit).await;
        let texts: Vec<_> = found
            .iter()
            .map(|(number, text)| (number.0, text.clone()))
            .collect();
        let expected: Vec<_> = numbers
            .iter()
            .map(|n: &u64| (*n, n.to_string().into()))
            .collect();
        assert_eq!(texts, expected, "from {from}, at most {limit}");
    }
    assert_eq!(read(log, "unknown", 1, 10).await, []);
}

/// Reads a stream in parts. Its records stand between the records of many other streams. Then reads a new stream with
/// the same name.
pub async fn a_stream_among_others_is_read_in_parts(log: &dyn Log) {
    const RECORDS: u64 = 40;
    let write = async |round: u64| {
        for number in 0..RECORDS {
            let text = format!("{round}/{number}");
            let id = AppendId(u128::from(round << 32 | number));
            let version = log
                .append(&stream("s"), Version(number), id, vec![text.into()])
                .await;
            assert_eq!(version.expect("nobody else writes"), Version(number + 1));
            // Between two records of the stream there are three cases: no records of other streams, only a few, or more
            // than a reader skips one by one.
            let others = [0, 0, 3, 0, 50][number as usize % 5];
            for other in 0..others {
                let name = format!("other/{round}/{number}/{other}");
                append(log, &name, 0, 1, ["x"]).await;
            }
        }
    };
    let text = |round: u64, number: u64| (Version(number), format!("{round}/{}", number - 1));
    let part = async |from: u64, limit: usize| {
        let found = read(log, "s", from, limit).await.into_iter();
        let found = found.map(|(number, text)| (number, String::from_utf8_lossy(&text).into()));
        found.collect::<Vec<(Version, String)>>()
    };
    write(1).await;
    for limit in [1, 7, usize::MAX] {
        let mut found = Vec::new();
        while found.len() < RECORDS as usize {
            let next = part(found.len() as u64 + 1, limit).await;
            assert!(!next.is_empty() && next.len() <= limit, "{next:?}");
            found.extend(next);
        }
        let all: Vec<_> = (1..=RECORDS).map(|number| text(1, number)).collect();
        assert_eq!(found, all, "at most {limit}");
    }
    // Between two reads the stream grows. It is then deleted and created again.
    assert_eq!(part(1, 5).await.len(), 5);
    append(log, "s", RECORDS, 1 << 100, ["grown"]).await;
    let grown = (Version(RECORDS + 1), "grown".to_owned());
    let (mut from, mut last) = (6, None);
    while let Some(found) = part(from, 9).await.pop() {
        from = found.0.0 + 1;
        last = Some(found);
    }
    assert_eq!(last, Some(grown));
    assert_eq!(part(1, 5).await.len(), 5);
    log.delete(lock(log, "s").await)
        .await
        .expect("it can be deleted");
    write(2).await;
    assert_eq!(part(6, 1).await, [text(2, 6)]);
}

/// The list contains the streams with the prefix, sorted by name, with their versions.
pub async fn streams_are_listed_by_prefix(log: &dyn Log) {
    for name in ["b/2", "a/1", "b/1", "b0", "b", "c", "b/é", "B/1"] {
        append(log, name, 0, 1, ["x"]).await;
    }
    append(log, "b/1", 1, 2, ["y"]).await;
    let found = log.list("b/").await.expect("the log can be listed");
    assert_eq!(
        found,
        [
            (stream("b/1"), Version(2)),
            (stream("b/2"), Version(1)),
            (stream("b/é"), Version(1))
        ]
    );
    assert_eq!(log.list("").await.expect("the log can be listed").len(), 8);
    assert_eq!(log.list("x").await.expect("the log can be listed"), []);
}

/// The last append decides the order, not the creation of the stream. An append that writes nothing does not count.
pub async fn streams_are_listed_by_their_last_append(log: &dyn Log) {
    let newest_first = async || {
        let listed = log.list_newest_first("b/").await;
        let listed = listed.expect("the log can be listed");
        listed
            .into_iter()
            .map(|(name, Version(version))| (name.to_string(), version))
            .collect::<Vec<_>>()
    };
    for name in ["b/2", "a/1", "b/1", "b/3"] {
        append(log, name, 0, 1, ["x"]).await;
    }
    let listed = [("b/3", 1), ("b/1", 1), ("b/2", 1)];
    assert_eq!(
        newest_first().await,
        listed.map(|(name, version)| (name.to_owned(), version))
    );
    append(log, "b/2", 1, 2, ["y", "z"]).await;
    append(log, "b/3", 0, 1, ["x"]).await;
    append(log, "b/1", 1, 3, []).await;
    let listed = [("b/2", 3), ("b/3", 1), ("b/1", 1)];
    assert_eq!(
        newest_first().await,
        listed.map(|(name, version)| (name.to_owned(), version))
    );
}

/// A tail is a read that can wait: it returns existing records immediately, and otherwise waits for the next records.
/// Several tails get the same records.
pub async fn a_tail_waits_for_the_next_record(log: &dyn Log) {
    append(log, "s", 0, 1, ["a", "b"]).await;
    let there = log
        .tail(&stream("s"), Version(2), 10)
        .await
        .expect("the log can be read");
    assert_eq!(there, [(Version(2), "b".into())]);

    let next = || log.tail(&stream("s"), Version(3), 10);
    let (mut one, mut two, mut dropped) = (next(), next(), next());
    for tail in [&mut one, &mut two, &mut dropped] {
        assert!(
            matches!(poll!(tail), Poll::Pending),
            "there is no third record"
        );
    }
    drop(dropped);
    append(log, "other", 0, 1, ["x"]).await;
    append(log, "s", 2, 2, ["c"]).await;
    for tail in [one, two] {
        assert_eq!(
            tail.await.expect("the log can be read"),
            [(Version(3), "c".into())]
        );
    }
    // A tail also waits for a stream that does not exist yet.
    let mut first = log.tail(&stream("new"), Version(1), 10);
    assert!(
        matches!(poll!(&mut first), Poll::Pending),
        "there is no record"
    );
    append(log, "new", 0, 1, ["n"]).await;
    assert_eq!(first.await.expect("the log can be read").len(), 1);
}

/// Longest wait of a tail for an append that is already stored. A log whose tail takes longer has lost the notification.
const TAIL_MAX: Duration = Duration::from_secs(20);

/// Time in which a tail ends after an append through this store object: shorter than the interval at which a tail checks
/// for records of other processes.
const AT_ONCE: Duration = Duration::from_millis(TAIL_POLL_MS / 2);

/// Number of attempts to measure one wait. The machine may delay most of them; the shortest wait counts.
const WAITS: u64 = 6;

type WaitingTail = LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

/// Polls the tails, appends the next record of the stream, and returns the time until all tails have returned it.
async fn wait_of_tails(log: &dyn Log, version: u64, tails: usize, polls: u64) -> Duration {
    let (name, next) = (stream("s"), Version(version + 1));
    let mut waiting: Vec<WaitingTail> = (0..tails).map(|_| log.tail(&name, next, 10)).collect();
    for _ in 0..polls {
        for tail in &mut waiting {
            assert!(
                matches!(poll!(tail), Poll::Pending),
                "there is no record {next:?}"
            );
        }
        tokio::task::yield_now().await;
    }
    append(log, "s", version, u128::from(version) + 1, ["x"]).await;
    let stored = Instant::now();
    let ended = tokio::time::timeout(TAIL_MAX, join_all(waiting)).await;
    for records in ended.expect("each tail ends") {
        assert_eq!(
            records.expect("the log can be read"),
            [(next, "x".into())],
            "a tail returns the next record"
        );
    }
    stored.elapsed()
}

/// Several tails wait for one record. The append ends all of them immediately, not only the first.
pub async fn one_append_ends_all_waiting_tails_at_once(log: &dyn Log) {
    const TAILS: usize = 8;
    let mut shortest = Duration::MAX;
    for version in 0..WAITS {
        shortest = shortest.min(wait_of_tails(log, version, TAILS, 1).await);
    }
    assert!(
        shortest < AT_ONCE,
        "a tail waits {shortest:?} for an append"
    );
}

/// The append comes at different steps of a tail: before its first poll, or after several. No step misses the append.
pub async fn a_tail_misses_no_append(log: &dyn Log) {
    const POLLS_MAX: u64 = 4;
    for polls in 0..=POLLS_MAX {
        let mut shortest = Duration::MAX;
        for attempt in 0..WAITS {
            let version = polls * WAITS + attempt;
            shortest = shortest.min(wait_of_tails(log, version, 1, polls).await);
        }
        assert!(
            shortest < AT_ONCE,
            "after {polls} polls, a tail waits {shortest:?} for an append"
        );
    }
}

/// Only one owner can hold a lock, and other callers can read the identity of this owner. Dropping the lock releases
/// it. Each stream has a separate lock.
pub async fn a_lock_is_held_by_one(log: &dyn Log) {
    let owner = async || {
        log.lock_owner(&stream("s"))
            .await
            .expect("owners can be asked for")
    };
    assert_eq!(owner().await, None);
    let held = lock(log, "s").await;
    assert_eq!(held.stream(), &stream("s"));
    match log
        .try_lock(&stream("s"))
        .await
        .expect("locks can be asked for")
    {
        LockAttempt::Locked(_) => panic!("the lock was given twice"),
        LockAttempt::HeldBy(by) => {
            assert_eq!(by.expect("this process holds it").pid, std::process::id());
        }
    }
    assert_eq!(owner().await.expect("it is held").pid, std::process::id());
    let other = lock(log, "t").await;
    drop(held);
    assert_eq!(owner().await, None);
    let again = lock(log, "s").await;
    drop((other, again));
    let racing = join_all((0..16).map(|_| log.try_lock(&stream("s")))).await;
    let won = racing
        .iter()
        .filter(|attempt| matches!(attempt, Ok(LockAttempt::Locked(_))))
        .count();
    assert_eq!(won, 1, "one of the racers gets the lock");
}

/// A deleted stream is empty, its lock is free, and its next record has number 1. Other streams do not change.
pub async fn a_deleted_stream_begins_again(log: &dyn Log) {
    append(log, "s", 0, 1, ["a", "b"]).await;
    append(log, "t", 0, 2, ["c"]).await;
    append(log, "s", 2, 3, ["d"]).await;
    let held = lock(log, "s").await;
    log.delete(held).await.expect("it can be deleted");
    assert_eq!(read(log, "s", 1, 10).await, []);
    assert_eq!(
        log.list("").await.expect("the log can be listed"),
        [(stream("t"), Version(1))]
    );
    assert_eq!(append(log, "s", 0, 4, ["e"]).await, 1);
    assert_eq!(read(log, "s", 1, 10).await, [(Version(1), "e".into())]);
    assert_eq!(append(log, "t", 1, 5, ["f"]).await, 2);
    assert_eq!(read(log, "t", 1, 10).await.len(), 2);
    drop(lock(log, "s").await);
    // A stream that does not exist can also be deleted.
    let held = lock(log, "unknown").await;
    log.delete(held).await.expect("there is nothing to delete");
}

/// After the deletion of a stream, an append with an id of the deleted stream is a new append: it writes its records.
pub async fn append_ids_end_with_their_stream(log: &dyn Log) {
    append(log, "s", 0, 1, ["a"]).await;
    append(log, "s", 1, 2, ["b"]).await;
    let held = lock(log, "s").await;
    log.delete(held).await.expect("it can be deleted");
    assert_eq!(append(log, "s", 0, 1, ["c"]).await, 1);
    assert_eq!(read(log, "s", 1, 10).await, [(Version(1), "c".into())]);
    assert_eq!(append(log, "s", 1, 2, ["d"]).await, 2);
    let unchanged = vec![(stream("s"), Version(2))];
    let gone = log.delete_unchanged(unchanged).await;
    assert_eq!(gone.expect("streams can be deleted"), [stream("s")]);
    assert_eq!(append(log, "s", 0, 1, ["e"]).await, 1);
    assert_eq!(read(log, "s", 1, 10).await, [(Version(1), "e".into())]);
    // The end of the deleted stream does not count as the end of the new one.
    let ahead = log.append(&stream("s"), Version(2), AppendId(3), records(["f"]));
    assert!(matches!(
        ahead.await,
        Err(AppendError::Conflict { actual: Version(1) })
    ));
}

/// A deletion without a lock deletes only the streams that have the expected version.
pub async fn unchanged_streams_are_deleted_together(log: &dyn Log) {
    let large: Vec<RecordBytes> = (0..3).map(|_| vec![7; 700_000].into()).collect();
    append(log, "s", 0, 1, ["a", "b"]).await;
    append(log, "grown", 0, 2, ["c"]).await;
    let written = log.append(&stream("large"), Version(0), AppendId(3), large);
    written.await.expect("it expects the right version");
    append(log, "grown", 1, 4, ["d"]).await;
    let expected = [("s", 2), ("grown", 1), ("unknown", 0), ("large", 3)];
    let delete = || {
        let named = expected.map(|(name, version)| (stream(name), Version(version)));
        log.delete_unchanged(named.into())
    };
    let gone = delete().await.expect("streams can be deleted");
    assert_eq!(gone, ["s", "unknown", "large"].map(stream));
    assert_eq!(read(log, "s", 1, 10).await, []);
    assert_eq!(read(log, "large", 1, 10).await, []);
    assert_eq!(read(log, "grown", 1, 10).await.len(), 2);
    let listed = log.list("").await.expect("the log can be listed");
    assert_eq!(listed, [(stream("grown"), Version(2))]);
    // A deletion that is repeated finds other versions.
    let gone = delete().await.expect("streams can be deleted");
    assert_eq!(gone, [stream("unknown")]);
    assert_eq!(append(log, "s", 0, 5, ["e"]).await, 1);
    assert_eq!(append(log, "s", 1, 6, ["f"]).await, 2);
    assert_eq!(read(log, "s", 1, 10).await.len(), 2);
}

/// If the future of an append is dropped, the append is written completely or not at all. If the append is then
/// repeated with its id, the log contains its records exactly once.
pub async fn a_dropped_append_is_whole_or_not_there(log: &dyn Log) {
    const APPENDS: u64 = 50;
    for n in 0..APPENDS {
        let again = || {
            log.append(
                &stream("s"),
                Version(n * 3),
                AppendId(u128::from(n)),
                records(["1", "2", "3"]),
            )
        };
        let mut dropped = again();
        if n % 2 == 0 {
            let _answered: Poll<_> = poll!(&mut dropped);
        }
        drop(dropped);
        let half = read(log, "s", 1, usize::MAX).await.len();
        assert!(
            half as u64 == n * 3 || half as u64 == n * 3 + 3,
            "half an append is there"
        );
        assert_eq!(
            again().await.expect("it is the same append"),
            Version(n * 3 + 3)
        );
    }
    assert_eq!(
        read(log, "s", 1, usize::MAX).await.len() as u64,
        APPENDS * 3
    );
}

/// 64 writers append at the same time. Each writer has a separate stream, and finds only its own records there.
pub async fn many_writers_on_many_streams_mix_nothing(log: &dyn Log) {
    const APPENDS: u64 = 20;
    join_all((0..64_u64).map(async |writer| {
        let name = format!("writer/{writer}");
        for n in 0..APPENDS {
            let (text, id) = (
                format!("{writer} {n}"),
                AppendId(u128::from(writer << 32 | n)),
            );
            let version = log
                .append(&stream(&name), Version(n), id, vec![text.into()])
                .await;
            assert_eq!(version.expect("nobody else writes here"), Version(n + 1));
        }
        let found = read(log, &name, 1, 100).await;
        let expected = (0..APPENDS).map(|n| (Version(n + 1), format!("{writer} {n}").into()));
        assert!(
            found.into_iter().eq(expected),
            "the records of {name} are its own"
        );
    }))
    .await;
    assert_eq!(
        log.list("writer/")
            .await
            .expect("the log can be listed")
            .len(),
        64
    );
}
