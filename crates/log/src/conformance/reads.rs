//! Checks of reads and lists.

use super::{append, lock, read, stream};
use crate::{AppendId, Log, Version};

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
