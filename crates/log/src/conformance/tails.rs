//! Checks of tails.

use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::poll;

use super::{append, stream};
use crate::{Log, LogError, LogFuture, RecordBytes, TAIL_POLL_MS, Version};

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
