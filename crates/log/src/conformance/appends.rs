//! Checks of appends.

use std::collections::BTreeSet;
use std::task::Poll;

use futures::future::join_all;
use futures::poll;

use super::{append, read, records, stream};
use crate::{AppendError, AppendId, Log, RecordBytes, Version};

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
