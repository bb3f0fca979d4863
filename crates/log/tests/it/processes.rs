//! Several processes use one store. They are killed at any time, run in parallel, or run one after another.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{SessionId, Timestamp};
use allstop_log::{
    AppendId, LockAttempt, Log, SessionError, SessionWriter, SqliteLog, StreamName, Version,
    list_sessions, read_session, remove_session,
};

use crate::files::helper;

fn start(arguments: &[&str], store: &Path) -> Child {
    let (command, rest) = arguments.split_first().unwrap();
    let mut started = Command::new(helper());
    started.arg(command).arg(store).args(rest);
    started
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A random number below `limit`. The number sets the time of a kill.
fn random(limit: u64) -> u64 {
    RandomState::new().hash_one(0) % limit
}

/// Checks that the stream contains `STREAM 1`, `STREAM 2` …, and returns the number of records.
async fn count_checked(log: &SqliteLog, name: &str) -> u64 {
    let mut next = Version(1);
    loop {
        let found = log.read(&StreamName::new(name), next, 500).await.unwrap();
        if found.is_empty() {
            return next.0 - 1;
        }
        for (version, record) in found {
            assert_eq!(version, next, "the numbers have no gaps");
            assert_eq!(record, format!("{name} {next}"), "the record is whole");
            next = next.next();
        }
    }
}

#[tokio::test]
async fn acknowledged_appends_survive_kill_9_at_any_time() {
    const KILLS: usize = 25;
    const PER_APPEND: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let mut acknowledged = HashMap::<String, u64>::new();
    for _ in 0..KILLS {
        let mut writer = start(&["append", "3", "1000000", "a", "b", "c", "d"], &store);
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut hear = |line: Option<std::io::Result<String>>| {
            // The kill may cut off the last line. The append of such a line does not count as acknowledged.
            let Some(Ok(line)) = line else { return false };
            if let Some((stream, version)) = line.split_once(' ') {
                acknowledged.insert(stream.to_owned(), version.parse().unwrap());
            }
            true
        };
        for _ in 0..random(100) {
            assert!(
                hear(lines.next()),
                "the writer continues until it is killed"
            );
        }
        let moment = Instant::now() + Duration::from_micros(random(1_000));
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        while hear(lines.next()) {}

        let log = SqliteLog::open(&store).await.unwrap();
        for (stream, version) in &acknowledged {
            let count = count_checked(&log, stream).await;
            assert!(
                count >= *version,
                "{stream}: {version} was acknowledged, {count} are there"
            );
            assert_eq!(
                count % PER_APPEND,
                0,
                "{stream}: half an append was written"
            );
        }
        log.close().await;
    }
    assert!(
        acknowledged.values().sum::<u64>() > 100,
        "something was written: {acknowledged:?}"
    );
}

#[tokio::test]
async fn two_processes_append_to_the_same_and_other_streams() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    // Both writers also try to create the store at the same time.
    let mut one = start(&["append", "1", "200", "shared", "one"], &store);
    let mut two = start(&["append", "2", "200", "shared", "two"], &store);
    for writer in [&mut one, &mut two] {
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        assert_eq!(lines.count(), 400);
        assert!(writer.wait().unwrap().success());
    }
    let log = SqliteLog::open(&store).await.unwrap();
    assert_eq!(count_checked(&log, "shared").await, 600);
    assert_eq!(count_checked(&log, "one").await, 200);
    assert_eq!(count_checked(&log, "two").await, 400);
}

#[tokio::test]
async fn tail_sees_appends_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let log = SqliteLog::open(&store).await.unwrap();
    let name = StreamName::new("s");
    log.append(&name, Version(0), AppendId(1), vec!["s 1".into()])
        .await
        .unwrap();
    let mut tail = log.tail(&name, Version(2), 10);
    assert!(futures::poll!(&mut tail).is_pending());
    let mut other = start(&["append", "1", "1", "s"], &store);
    assert_eq!(tail.await.unwrap(), [(Version(2), "s 2".into())]);
    assert!(other.wait().unwrap().success());
    // The cached end of the stream is outdated, and the log must not use it.
    log.append(&name, Version(2), AppendId(2), vec!["s 3".into()])
        .await
        .unwrap();
    assert_eq!(count_checked(&log, "s").await, 3);
}

#[tokio::test]
async fn lock_excludes_other_processes_until_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let log = SqliteLog::open(&store).await.unwrap();
    let name = StreamName::new("session/s");
    for kill in [true, false, true] {
        let mut holder = start(&["lock", "session/s"], &store);
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "locked");
        let owner = log.lock_owner(&name).await.unwrap().unwrap();
        assert_eq!(owner.pid, holder.id());
        match log.try_lock(&name).await.unwrap() {
            LockAttempt::HeldBy(by) => assert_eq!(by, Some(owner)),
            LockAttempt::Locked(_) => panic!("two processes hold the lock"),
        }
        if kill {
            holder.kill().unwrap();
        } else {
            drop(holder.stdin.take());
        }
        holder.wait().unwrap();
        assert_eq!(log.lock_owner(&name).await.unwrap(), None);
        let LockAttempt::Locked(ours) = log.try_lock(&name).await.unwrap() else {
            panic!("its owner has ended")
        };
        let mut refused = start(&["lock", "session/s"], &store);
        let mut lines = BufReader::new(refused.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "held");
        drop(refused.stdin.take());
        refused.wait().unwrap();
        drop(ours);
    }
    log.close().await;
    let left = std::fs::read_dir(folder.path().join("store.db.locks"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "a released lock leaves no file");
}

/// A user may delete the lock files, so the log also reads the owner from the session's records.
#[tokio::test]
async fn living_owner_without_its_lock_file_keeps_the_session() {
    for turn in ["open", "ended"] {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let locks = folder.path().join("store.db.locks");
        let mut owner = start(&["own", "s", turn], &store);
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "owned");
        let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&store).await.unwrap());
        let id = SessionId::from("s");
        let resume =
            || SessionWriter::resume(Arc::clone(&log), id.clone(), Timestamp::from_unix_ms(0));
        let version = log.list("session/s").await.unwrap()[0].1;

        std::fs::remove_dir_all(&locks).unwrap();
        let refused = resume().await.unwrap_err();
        let SessionError::InUse { owner: by, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(by.as_ref().unwrap().pid, owner.id());
        std::fs::remove_dir_all(&locks).unwrap();
        let refused = remove_session(&*log, &id).await.unwrap_err();
        assert!(matches!(refused, SessionError::InUse { .. }), "{refused}");
        assert_eq!(log.list("session/s").await.unwrap()[0].1, version);
        if turn == "open" {
            // The lock folder exists again, but the owner of the open turn still counts.
            let refused = resume().await.unwrap_err();
            assert!(matches!(refused, SessionError::InUse { .. }), "{refused}");
            let (_, by) = read_session(&*log, &id).await.unwrap();
            assert_eq!(by.unwrap().pid, owner.id());
            let listed = list_sessions(&*log).await.unwrap().remove(0);
            assert_eq!(listed.owner.unwrap().pid, owner.id());
        }

        // A zombie does not count as an owner, even if it is never reaped.
        owner.kill().unwrap();
        let began = Instant::now();
        loop {
            std::fs::remove_dir_all(&locks).unwrap();
            match resume().await {
                Ok(session) => break drop(session),
                Err(SessionError::InUse { .. }) if began.elapsed().as_secs() < 20 => {}
                Err(error) => panic!("{error}"),
            }
        }
        owner.wait().unwrap();
    }
}

#[tokio::test]
async fn query_of_the_owner_never_blocks_a_lock() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    // Two stores in one process have separate locks, as in two processes.
    let (watcher, taker) = (
        SqliteLog::open(&store).await.unwrap(),
        SqliteLog::open(&store).await.unwrap(),
    );
    let name = StreamName::new("session/s");
    let watch = async {
        for _ in 0..2_000 {
            watcher.lock_owner(&name).await.unwrap();
        }
    };
    let take = async {
        for _ in 0..1_000 {
            assert!(matches!(
                taker.try_lock(&name).await.unwrap(),
                LockAttempt::Locked(_)
            ));
        }
    };
    futures::join!(watch, take);
}

#[tokio::test]
async fn append_waits_for_a_busy_process_and_then_fails() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let log = SqliteLog::open(&store).await.unwrap();
    let name = StreamName::new("s");
    let other = rusqlite::Connection::open(&store).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = log.append(&name, Version(0), AppendId(1), vec!["a".into()]);
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(
        log.read(&name, Version(1), 1).await.unwrap(),
        [],
        "reads do not wait for it"
    );
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.await.unwrap(), Version(1));

    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let busy = log
        .append(&name, Version(1), AppendId(2), vec!["b".into()])
        .await
        .unwrap_err();
    assert!(
        busy.to_string().contains("keeps the store locked"),
        "{busy}"
    );
    let waited = began.elapsed();
    assert!(
        waited > Duration::from_secs(4) && waited < Duration::from_secs(8),
        "{waited:?}"
    );
    // A blocked writer does not delay the drop of the log, so it does not delay the exit of the process.
    let blocked = log.append(&name, Version(1), AppendId(3), vec!["b".into()]);
    let began = Instant::now();
    drop((log, blocked));
    assert!(began.elapsed() < Duration::from_millis(500));
}
