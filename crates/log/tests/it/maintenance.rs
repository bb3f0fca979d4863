//! Check, back-up, compaction and repair of a store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_log::{
    AppendId, LockAttempt, Log, LogErrorKind, MaintenanceStop, RecordBytes, RepairReport,
    SqliteLog, StoreCheckReport, StoreMaintenance, StoreProblem, StreamName, Version,
};
use tempfile::TempDir;

use crate::damage::{DAMAGES, LEN, change, filled, read};
use crate::files::filled_with;

async fn check(path: &Path) -> StoreCheckReport {
    let store = StoreMaintenance::of(path).unwrap();
    store.check(Box::new(|_, _| {})).await.unwrap()
}

async fn repair(path: &Path) -> RepairReport {
    StoreMaintenance::of(path)
        .unwrap()
        .repair(Box::new(|_, _| Vec::new()))
        .await
        .unwrap()
}

/// Names of the files with this text in their names.
fn files(folder: &TempDir, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.to_string_lossy().contains(part))
        .collect()
}

fn contains(path: &Path, text: &str) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn whole_store_has_no_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let store = StoreMaintenance::of(&path).unwrap();
    let progress = Box::new(move |now, _| seen.store(now, Ordering::Relaxed));
    let report = store.check(progress).await.unwrap();
    let expected = StoreCheckReport {
        streams: 3,
        records: 3 * LEN,
        problems: Vec::new(),
    };
    assert_eq!(report, expected);
}

#[tokio::test]
async fn damage_of_a_stream_is_named_and_cut_off() {
    for damage in DAMAGES {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(&folder).await;
        change(&path, damage);
        let problem = StoreProblem::Stream {
            stream: StreamName::new("session/b"),
            readable: Version(9),
            version: Version(LEN),
        };
        assert_eq!(check(&path).await.problems, [problem], "{damage}");
        let report = repair(&path).await;
        assert_eq!(report.records, 2 * LEN + 9, "{damage}");
        let [cut] = &report.cut[..] else {
            panic!("{damage}: {report:?}")
        };
        assert_eq!((cut.version, cut.before), (Version(9), Some(Version(LEN))));
        assert!(report.damaged.exists());
        assert_eq!(check(&path).await.problems, [], "{damage}");
        let log = SqliteLog::open(&path).await.unwrap();
        for (stream, len) in [("session/a", LEN), ("session/b", 9), ("session/c", LEN)] {
            assert_eq!(
                read(&log, stream).await.unwrap().len() as u64,
                len,
                "{damage}"
            );
            let stream = StreamName::new(stream);
            let append = log.append(&stream, Version(len), AppendId(99), vec!["more".into()]);
            append.await.unwrap();
        }
        log.close().await;
    }
}

#[tokio::test]
async fn store_with_a_damaged_log_is_repaired_up_to_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/a");
    for n in LEN..2 * LEN {
        let append = log.append(&stream, Version(n), AppendId(n.into()), vec!["more".into()]);
        append.await.unwrap();
    }
    log.close().await;
    let wal = folder.path().join("store.db-wal");
    let mut bytes = fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&wal, &bytes).unwrap();
    let problems = check(&path).await.problems;
    assert!(
        matches!(&problems[..], [StoreProblem::Unopened(_)]),
        "{problems:?}"
    );
    let error = SqliteLog::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::DamagedLog);
    let report = repair(&path).await;
    assert_eq!(report.cut, []);
    let copies = files(&folder, "damaged");
    let copy = copies
        .iter()
        .find(|copy| copy.to_string_lossy().ends_with("-wal"));
    assert_eq!(fs::read(copy.expect("a copy of the log")).unwrap(), bytes);
    assert_eq!(copies.len(), 2, "{copies:?}");
    let log = SqliteLog::open(&path).await.unwrap();
    let read = read(&log, "session/a").await.unwrap().len() as u64;
    assert!((LEN..2 * LEN).contains(&read), "{read}");
    log.close().await;
}

/// Regression: SQLite took the empty file for a new store, and emptied the log with all records.
#[tokio::test]
async fn empty_file_with_a_log_is_reported_and_repaired() {
    for keeps_index in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        filled_with(&path, LEN).await;
        let wal = folder.path().join("store.db-wal");
        let bytes = fs::read(&wal).unwrap();
        fs::write(&path, "").unwrap();
        if !keeps_index {
            fs::remove_file(folder.path().join("store.db-shm")).unwrap();
        }
        let error = SqliteLog::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), LogErrorKind::Incomplete);
        let problems = check(&path).await.problems;
        assert!(
            matches!(&problems[..], [StoreProblem::Unopened(_)]),
            "{problems:?}"
        );
        assert!(fs::read(&wal).unwrap() == bytes, "the log has changed");
        // Nothing was written back before, so the log has all records.
        let report = repair(&path).await;
        assert_eq!((report.records, report.cut), (LEN, Vec::new()));
        assert_eq!(check(&path).await.problems, []);
    }
}

/// Regression: SQLite took the empty file for a new store, and every command reported a store without sessions.
#[tokio::test]
async fn empty_file_of_a_used_store_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    drop(log.try_lock(&StreamName::new("session/a")).await.unwrap());
    log.close().await;
    fs::write(&path, "").unwrap();
    let error = SqliteLog::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::Incomplete);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(repair(&path).await.records, 0);
    SqliteLog::open(&path).await.unwrap().close().await;
    // A user may create the file of a new store.
    let new = folder.path().join("new.db");
    fs::write(&new, "").unwrap();
    SqliteLog::open(&new).await.unwrap().close().await;
}

/// Regression: SQLite refuses to read a file that was cut, and the repair gave up.
#[tokio::test]
async fn cut_store_keeps_the_readable_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled_with(&path, 200).await;
    let log = SqliteLog::open(&path).await.unwrap();
    log.write_back().await.unwrap();
    log.close().await;
    let file = fs::File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 4_096).unwrap();
    assert!(!check(&path).await.problems.is_empty());
    let report = repair(&path).await;
    assert!((100..200).contains(&report.records), "{report:?}");
    assert_eq!(check(&path).await.problems, []);
}

#[tokio::test]
async fn stream_that_was_cut_gets_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    change(&path, DAMAGES[0]);
    let ended = |stream: &StreamName, kept: &[RecordBytes]| {
        vec![format!("the end of {} of {stream}", kept.len()).into()]
    };
    let store = StoreMaintenance::of(&path).unwrap();
    let report = store.repair(Box::new(ended)).await.unwrap();
    assert_eq!(report.cut[0].version, Version(9));
    assert_eq!(report.records, 2 * LEN + 10);
    assert_eq!(check(&path).await.problems, []);
    let log = SqliteLog::open(&path).await.unwrap();
    let records = read(&log, "session/b").await.unwrap();
    let (last, record) = records.last().unwrap();
    assert_eq!(*last, Version(10));
    assert_eq!(&record[..], b"the end of 9 of session/b");
    log.close().await;
}

#[tokio::test]
async fn interrupted_repair_keeps_the_store_closed_until_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    // The process ended after the copies were made, while it removed the old files.
    fs::copy(&path, folder.path().join("store.db.damaged-1")).unwrap();
    fs::write(folder.path().join("store.db.repair"), "store.db.damaged-1").unwrap();
    fs::write(&path, "half of a file").unwrap();
    let error = SqliteLog::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::RepairUnfinished);
    let report = repair(&path).await;
    assert_eq!((report.records, report.cut), (3 * LEN, Vec::new()));
    assert_eq!(check(&path).await.problems, []);
    assert_eq!(files(&folder, ".repair"), Vec::<PathBuf>::new());
}

/// A repair that fails before it changes the files leaves no mark, which would keep the store closed.
#[tokio::test]
async fn repair_of_a_file_that_is_no_store_leaves_no_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    fs::write(&path, "not a store").unwrap();
    let store = StoreMaintenance::of(&path).unwrap();
    store.repair(Box::new(|_, _| Vec::new())).await.unwrap_err();
    assert_eq!(files(&folder, ".repair"), Vec::<PathBuf>::new());
    assert_eq!(files(&folder, ".damaged"), Vec::<PathBuf>::new());
    assert_eq!(fs::read(&path).unwrap(), b"not a store");
    let error = SqliteLog::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::Corrupt);
}

#[tokio::test]
async fn store_in_use_is_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/a");
    let LockAttempt::Locked(lock) = log.try_lock(&stream).await.unwrap() else {
        panic!("no other process has the lock");
    };
    let store = StoreMaintenance::of(&path).unwrap();
    let error = store.repair(Box::new(|_, _| Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::Busy);
    drop(lock);
    // The refused repair does not keep the store closed.
    SqliteLog::open(&path).await.unwrap().close().await;
    log.close().await;
}

#[tokio::test]
async fn back_up_is_complete_and_private_while_others_append() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/a");
    let append = log.append(&stream, Version(LEN), AppendId(99), vec!["more".into()]);
    append.await.unwrap();
    let to = folder.path().join("copy.db");
    let store = StoreMaintenance::of(&path).unwrap();
    let appends = async {
        for n in LEN + 1..LEN + 50 {
            let append = log.append(&stream, Version(n), AppendId(n.into()), vec!["x".into()]);
            append.await.unwrap();
        }
    };
    let (backed_up, ()) = tokio::join!(store.back_up(&to, Box::new(|_, _| {})), appends);
    let report = backed_up.unwrap();
    assert_eq!(report.len, fs::metadata(&to).unwrap().len());
    assert_eq!(report.check.problems, []);
    assert_eq!(files(&folder, "copy"), [to.as_path()]);
    let mode = fs::metadata(&to).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(check(&to).await.problems, []);
    let copy = SqliteLog::open(&to).await.unwrap();
    assert!(read(&copy, "session/a").await.unwrap().len() as u64 > LEN);
    copy.close().await;
    // A file that exists is never overwritten.
    let again = store.back_up(&to, Box::new(|_, _| {})).await;
    again.unwrap_err();
    assert_eq!(files(&folder, ".new-"), Vec::<PathBuf>::new());
    log.close().await;
}

#[tokio::test]
async fn removed_text_is_in_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/secret-name");
    for n in 0..50_u64 {
        let record = format!("the PIN is 4711 {}", "x".repeat(n as usize * 40));
        let append = log.append(&stream, Version(n), AppendId(n.into()), vec![record.into()]);
        append.await.unwrap();
    }
    let LockAttempt::Locked(lock) = log.try_lock(&stream).await.unwrap() else {
        panic!("no other process has the lock");
    };
    log.delete(lock).await.unwrap();
    for file in files(&folder, "store.db") {
        if file.is_file() {
            for text in ["4711", "secret-name"] {
                assert!(!contains(&file, text), "{text} in {}", file.display());
            }
        }
    }
    log.close().await;
}

/// Another process that has the store open continues after the compaction.
#[tokio::test]
async fn compaction_frees_space_while_the_store_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/large");
    for n in 0..50_u64 {
        let record = vec![b'x'; 20_000].into();
        let append = log.append(&stream, Version(n), AppendId(n.into()), vec![record]);
        append.await.unwrap();
    }
    let LockAttempt::Locked(lock) = log.try_lock(&stream).await.unwrap() else {
        panic!("no other process has the lock");
    };
    log.delete(lock).await.unwrap();
    let store = StoreMaintenance::of(&path).unwrap();
    let report = store.compact().await.unwrap();
    assert!(report.before > 1_000_000, "{report:?}");
    assert!(report.after < 100_000, "{report:?}");
    assert_eq!(report.after, fs::metadata(&path).unwrap().len());
    let stream = StreamName::new("session/a");
    let append = log.append(&stream, Version(LEN), AppendId(99), vec!["more".into()]);
    append.await.unwrap();
    assert_eq!(read(&log, "session/a").await.unwrap().len() as u64, LEN + 1);
    log.close().await;
    assert_eq!(check(&path).await.problems, []);
}

/// Regression: the search for readable rows counted up to this number.
#[tokio::test]
async fn impossible_number_of_the_last_row_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    change(
        &path,
        "UPDATE streams SET last_record = 1 << 60 WHERE name = 'session/b'",
    );
    let [StoreProblem::Stream { stream, .. }] = &check(&path).await.problems[..] else {
        panic!("one damaged stream");
    };
    assert_eq!(stream.as_str(), "session/b");
    let repaired = repair(&path).await;
    assert_eq!(repaired.records, 3 * LEN);
    assert_eq!(check(&path).await.problems, []);
}

#[tokio::test]
async fn stopped_operation_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    let stream = StreamName::new("session/a");
    let records = vec![RecordBytes::from("{}"); 20_000];
    let append = log.append(&stream, Version(0), AppendId(1), records);
    append.await.unwrap();
    log.write_back().await.unwrap();
    log.close().await;
    change(
        &path,
        "UPDATE records SET body = zeroblob(9) WHERE number = 19000",
    );
    let before = fs::read(&path).unwrap();
    let stop = MaintenanceStop::default();
    stop.stop();
    let store = StoreMaintenance::of(&path).unwrap().stopped_by(&stop);
    let copy = folder.path().join("copy.db");
    let stopped = [
        store.check(Box::new(|_, _| {})).await.map(drop),
        store.back_up(&copy, Box::new(|_, _| {})).await.map(drop),
        store.compact().await.map(drop),
        store.repair(Box::new(|_, _| Vec::new())).await.map(drop),
    ];
    for answer in stopped {
        assert_eq!(answer.unwrap_err().kind(), LogErrorKind::Stopped);
    }
    for part in ["copy", "new-", "repair", "damaged"] {
        assert!(files(&folder, part).is_empty(), "{part}");
    }
    assert!(fs::read(&path).unwrap() == before, "the store is unchanged");
    assert_eq!(check(&path).await.problems.len(), 1);
}

/// Regression: the next repair mixed the restored back-up with the log of the damaged store.
#[tokio::test]
async fn back_up_that_is_restored_after_an_interrupted_repair_stays_whole() {
    for has_copy in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(&folder).await;
        let store = StoreMaintenance::of(&path).unwrap();
        let copy = folder.path().join("back-up.db");
        store.back_up(&copy, Box::new(|_, _| {})).await.unwrap();
        // An interrupted repair has left its mark and its copies, with a log of another time.
        let hash = format!("store.db.damaged-1\n{:016x}", 7);
        fs::write(folder.path().join("store.db.repair"), hash).unwrap();
        fs::write(folder.path().join("store.db.damaged-1-wal"), vec![1; 9_000]).unwrap();
        if has_copy {
            fs::write(folder.path().join("store.db.damaged-1"), vec![1; 8_192]).unwrap();
        }
        for end in ["-wal", "-shm"] {
            drop(fs::remove_file(
                folder.path().join(format!("store.db{end}")),
            ));
        }
        fs::copy(&copy, &path).unwrap();
        let repaired = repair(&path).await;
        assert_eq!((repaired.records, repaired.cut), (3 * LEN, Vec::new()));
        assert_eq!(check(&path).await.problems, []);
        assert_eq!(files(&folder, "repair"), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn damaged_first_page_is_repaired() {
    // The header, the first page of the schema, and the text of the schema.
    for at in [0, 16, 18, 21, 47, 100, 103, 3_700, 4_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(&folder).await;
        let log = SqliteLog::open(&path).await.unwrap();
        log.write_back().await.unwrap();
        log.close().await;
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 0x40;
        fs::write(&path, bytes).unwrap();
        assert_eq!(repair(&path).await.records, 3 * LEN, "{at}");
        assert_eq!(check(&path).await.problems, []);
    }
}

/// Regression: the copy looked damaged, because SQLite read the log of another store as a part of it.
#[tokio::test]
async fn back_up_next_to_the_log_of_a_removed_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let left = folder.path().join("copy.db-wal");
    fs::write(&left, "of a removed file").unwrap();
    let store = StoreMaintenance::of(&path).unwrap();
    let to = folder.path().join("copy.db");
    let refused = store.back_up(&to, Box::new(|_, _| {})).await.unwrap_err();
    assert!(refused.to_string().contains("copy.db-wal"), "{refused}");
    assert_eq!(files(&folder, "copy"), [left]);
}

/// Regression: SQLite applied the log of the replaced store to the back-up, so sessions had the records of others.
#[tokio::test]
async fn back_up_that_is_copied_over_a_store_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    let store = StoreMaintenance::of(&path).unwrap();
    let copy = folder.path().join("back-up.db");
    store.back_up(&copy, Box::new(|_, _| {})).await.unwrap();
    for name in ["session/x", "session/y", "session/z"] {
        let log = SqliteLog::open(&path).await.unwrap();
        let stream = StreamName::new(name);
        let records = vec![RecordBytes::from("later"); 30];
        let append = log.append(&stream, Version(0), AppendId(1), records);
        append.await.unwrap();
        log.close().await;
    }
    assert!(
        fs::metadata(folder.path().join("store.db-wal"))
            .unwrap()
            .len()
            > 0
    );
    fs::copy(&copy, &path).unwrap();
    fs::write(folder.path().join("store.db.repair"), "store.db.damaged-1").unwrap();
    let (one, two) = tokio::join!(SqliteLog::open(&path), SqliteLog::open(&path));
    let (one, two) = (one.unwrap(), two.unwrap());
    let listed = one.list("").await.unwrap();
    let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["session/a", "session/b", "session/c"]);
    for name in names {
        assert_eq!(read(&two, name).await.unwrap().len() as u64, LEN);
    }
    one.close().await;
    two.close().await;
    assert_eq!(check(&path).await.problems, []);
}

/// A stream whose name was replaced, as in a mix of two stores, does not show the records of another stream.
#[tokio::test]
async fn records_of_another_stream_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(&folder).await;
    change(&path, "UPDATE streams SET name = 'session/x' WHERE id = 2");
    let log = SqliteLog::open(&path).await.unwrap();
    let error = read(&log, "session/x").await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::DamagedStream);
    log.close().await;
    assert_eq!(check(&path).await.problems.len(), 1);
}

#[tokio::test]
async fn store_of_one_byte_is_refused_like_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled_with(&path, 20).await;
    fs::write(&path, "S").unwrap();
    let error = SqliteLog::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), LogErrorKind::Incomplete);
    assert_eq!(repair(&path).await.records, 20);
}
