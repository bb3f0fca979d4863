//! Damaged records. The damage of one stream is reported with its name, and no other stream fails.

use std::path::{Path, PathBuf};

use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogErrorKind, RecordBytes, SessionError,
    SqliteLog, StreamName, Version, list_sessions, remove_session,
};
use tempfile::TempDir;

pub(crate) const LEN: u64 = 20;
const STREAMS: [&str; 3] = ["session/a", "session/b", "session/c"];

/// A store with three streams, whose records are mixed in the file.
pub(crate) async fn filled(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    for n in 0..LEN {
        for stream in STREAMS {
            let record = format!("record {n} of {stream}").into();
            let id = AppendId(u128::from(n));
            let append = log.append(&StreamName::new(stream), Version(n), id, vec![record]);
            append.await.unwrap();
        }
    }
    log.write_back().await.unwrap();
    log.close().await;
    path
}

pub(crate) fn change(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
}

pub(crate) async fn read(
    log: &SqliteLog,
    stream: &str,
) -> Result<Vec<(Version, RecordBytes)>, LogError> {
    log.read(&StreamName::new(stream), Version(1), usize::MAX)
        .await
}

/// Each way to damage the record 10 of `session/b`.
pub(crate) const DAMAGES: [&str; 6] = [
    "DELETE FROM records WHERE stream = 2 AND number = 10",
    "UPDATE records SET body = zeroblob(length(body)) WHERE stream = 2 AND number = 10",
    "UPDATE records SET body = CAST('record 8' || substr(body, 10) AS BLOB) WHERE stream = 2 AND number = 10",
    "UPDATE records SET append_id = zeroblob(16) WHERE stream = 2 AND number = 10",
    "UPDATE records SET previous = previous + 1 WHERE stream = 2 AND number = 10",
    "UPDATE records SET checksum = checksum + 1 WHERE stream = 2 AND number = 10",
];

#[tokio::test]
async fn damaged_stream_is_named_and_the_others_are_readable() {
    for damage in DAMAGES {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(&folder).await;
        change(&path, damage);
        let log = SqliteLog::open(&path).await.unwrap();
        let error = read(&log, "session/b").await.expect_err(damage);
        assert_eq!(error.kind(), LogErrorKind::DamagedStream, "{damage}");
        let text = error.to_string();
        assert!(
            text.contains("session/b") && text.contains("store.db"),
            "{text}"
        );
        assert_eq!(log.list("session/").await.unwrap().len(), 3, "{damage}");
        for stream in ["session/a", "session/c"] {
            assert_eq!(
                read(&log, stream).await.unwrap().len() as u64,
                LEN,
                "{damage}"
            );
            let stream = StreamName::new(stream);
            let append = log.append(&stream, Version(LEN), AppendId(99), vec!["more".into()]);
            append.await.unwrap();
        }
        log.close().await;
    }
}

/// A list of all sessions names the problem of the damaged one.
#[tokio::test]
async fn list_names_the_damaged_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    change(
        &path,
        "DELETE FROM records WHERE stream = 2 AND number = 20",
    );
    let log = SqliteLog::open(&path).await.unwrap();
    let sessions = list_sessions(&log).await.unwrap();
    let ids: Vec<_> = sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
    let problem = sessions[1].problem.as_ref().expect("a problem");
    assert!(matches!(problem, SessionError::Damaged(_)), "{problem}");
    remove_session(&log, &sessions[1].id).await.unwrap();
    assert_eq!(list_sessions(&log).await.unwrap().len(), 2);
    log.close().await;
}

#[tokio::test]
async fn repetition_of_an_append_finds_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    change(&path, DAMAGES[0]);
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/b");
    let again = log.append(&stream, Version(3), AppendId(3), vec!["again".into()]);
    match again.await {
        Err(AppendError::Log(error)) => assert_eq!(error.kind(), LogErrorKind::DamagedStream),
        answer => panic!("{answer:?}"),
    }
    log.close().await;
}

#[tokio::test]
async fn damaged_stream_can_be_deleted() {
    for damage in DAMAGES {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(&folder).await;
        change(&path, damage);
        let log = SqliteLog::open(&path).await.unwrap();
        let stream = StreamName::new("session/b");
        let LockAttempt::Locked(lock) = log.try_lock(&stream).await.unwrap() else {
            panic!("no other process has the lock");
        };
        log.delete(lock).await.expect(damage);
        assert_eq!(log.list("session/").await.unwrap().len(), 2, "{damage}");
        log.close().await;
        let connection = rusqlite::Connection::open(&path).unwrap();
        let left =
            connection.query_row("SELECT count(*) FROM records WHERE stream = 2", [], |row| {
                row.get::<_, i64>(0)
            });
        assert_eq!(left.unwrap(), 0, "{damage}");
    }
}

#[tokio::test]
async fn store_of_an_earlier_version_is_read_and_continued() {
    continues("", "").await;
    continues("checksum INTEGER,", "7,").await;
}

/// `column` and `value` are the checksum in a record of the earlier version.
async fn continues(column: &str, value: &str) {
    let version = if column.is_empty() { 1 } else { 2 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let earlier = rusqlite::Connection::open(&path).unwrap();
    earlier
        .execute_batch(&format!(
            "CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER NOT NULL,
                 last_record INTEGER NOT NULL) STRICT;
             CREATE TABLE records (id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, number INTEGER NOT NULL,
                 previous INTEGER NOT NULL, append_id BLOB NOT NULL, {column} body BLOB NOT NULL) STRICT;
             INSERT INTO streams VALUES (1, 's', 2, 2);
             INSERT INTO records VALUES (1, 1, 1, 0, zeroblob(16), {value} CAST('one' AS BLOB)),
                 (2, 1, 2, 1, zeroblob(16), {value} CAST('two' AS BLOB));
             PRAGMA application_id = 0x416c5374;
             PRAGMA user_version = {version};",
        ))
        .unwrap();
    drop(earlier);
    let (one, two) = tokio::join!(SqliteLog::open(&path), SqliteLog::open(&path));
    let (one, two) = (one.unwrap(), two.unwrap());
    let stream = StreamName::new("s");
    let append = one.append(&stream, Version(2), AppendId(3), vec!["three".into()]);
    append.await.unwrap();
    let records = read(&two, "s").await.unwrap();
    let bodies: Vec<_> = records.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
    one.close().await;
    two.close().await;
    change(
        &path,
        "UPDATE records SET body = zeroblob(5) WHERE number = 3",
    );
    let log = SqliteLog::open(&path).await.unwrap();
    let error = read(&log, "s").await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::DamagedStream);
    log.close().await;
}

/// Damages the write-ahead log at many places, with and without its index. The next opening must report the damage, or
/// find every record.
async fn log_damage_is_found(keeps_index: bool, damage: impl Fn(&mut Vec<u8>, usize)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    for n in 0..LEN {
        let append = log.append(
            &StreamName::new("s"),
            Version(n),
            AppendId(n.into()),
            vec![vec![b'x'; 3_000].into()],
        );
        append.await.unwrap();
    }
    log.close().await;
    let beside = |end: &str| folder.path().join(format!("store.db{end}"));
    let [whole, main, index] = ["-wal", "", "-shm"].map(|end| std::fs::read(beside(end)).unwrap());
    let mut found = 0;
    // With the checksum of the header.
    let positions: Vec<_> = (0..whole.len()).step_by(7_001).chain([24, 31]).collect();
    for at in &positions {
        let mut changed = whole.clone();
        damage(&mut changed, *at);
        std::fs::write(&path, &main).unwrap();
        std::fs::write(beside("-wal"), &changed).unwrap();
        if keeps_index {
            std::fs::write(beside("-shm"), &index).unwrap();
        } else {
            // The store may have refused to open before it created the index.
            let _missing = std::fs::remove_file(beside("-shm"));
        }
        match SqliteLog::open(&path).await {
            Err(error) => {
                assert_eq!(error.kind(), LogErrorKind::DamagedLog, "{at}: {error}");
                assert_eq!(std::fs::read(beside("-wal")).unwrap(), changed, "{at}");
                found += 1;
            }
            Ok(log) => {
                let read = read(&log, "s").await.unwrap().len() as u64;
                // Without the index, the last commit looks like a commit that a crash has cut off.
                let least = if keeps_index { LEN } else { LEN - 1 };
                assert!(read >= least, "{at} of {}: {read}", whole.len());
                log.close().await;
            }
        }
    }
    assert!(
        found * 10 > positions.len() * 8,
        "{found} of {}",
        positions.len()
    );
}

#[tokio::test]
async fn changed_bit_in_the_write_ahead_log_is_found() {
    log_damage_is_found(true, |bytes, at| bytes[at] ^= 4).await;
    log_damage_is_found(false, |bytes, at| bytes[at] ^= 4).await;
}

#[tokio::test]
async fn zeroed_page_in_the_write_ahead_log_is_found() {
    let zeros_a_page = |bytes: &mut Vec<u8>, at: usize| {
        let end = bytes.len().min(at + 4_096);
        bytes[at..end].fill(0);
    };
    log_damage_is_found(true, zeros_a_page).await;
    log_damage_is_found(false, zeros_a_page).await;
}

#[tokio::test]
async fn truncated_write_ahead_log_is_found_with_its_index() {
    log_damage_is_found(true, Vec::truncate).await;
}
