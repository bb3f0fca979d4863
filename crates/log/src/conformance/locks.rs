//! Checks of locks and deletions.

use futures::future::join_all;

use super::{append, lock, read, records, stream};
use crate::{AppendError, AppendId, LockAttempt, Log, RecordBytes, Version};

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
