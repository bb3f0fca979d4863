//! Files of a store that are moved, removed or replaced while the store is open. The store must not confirm an append
//! to such files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogErrorKind, SqliteLog, StreamName, Version,
};

const STREAM: &str = "session/s";

async fn append(log: &SqliteLog, expected: u64) -> Result<Version, AppendError> {
    let id = AppendId(u128::from(expected));
    let record = b"record".to_vec().into();
    log.append(
        &StreamName::new(STREAM),
        Version(expected),
        id,
        vec![record],
    )
    .await
}

fn beside(path: &Path, end: &str) -> PathBuf {
    format!("{}{end}", path.display()).into()
}

/// Checks that a store refuses appends, reads and locks with the correct error after `happens` has changed its files.
async fn refused_after(what: &str, happens: impl FnOnce(&Path)) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    append(&log, 0).await.unwrap();
    happens(&path);
    let stream = StreamName::new(STREAM);
    let answers = [
        ("append", append(&log, 1).await.map(drop)),
        (
            "read",
            log.read(&stream, Version(1), 9)
                .await
                .map(drop)
                .map_err(AppendError::Log),
        ),
        (
            "lock",
            log.try_lock(&stream)
                .await
                .map(drop)
                .map_err(AppendError::Log),
        ),
    ];
    for (did, answer) in answers {
        match answer {
            Err(AppendError::Log(error)) => {
                assert_eq!(error.kind(), LogErrorKind::Replaced, "{what}: {did}");
                assert!(error.to_string().contains("store.db"), "{what}: {error}");
                assert!(error.hint().is_some());
            }
            other => panic!("{what}: {did}: {other:?}"),
        }
    }
    log.close().await;
}

#[tokio::test]
async fn moved_or_replaced_store_confirms_nothing() {
    refused_after("removed", |path| fs::remove_file(path).unwrap()).await;
    refused_after("moved", |path| {
        fs::rename(path, beside(path, ".old")).unwrap();
    })
    .await;
    refused_after("moved, with a link in its place", |path| {
        let moved = beside(path, ".old");
        fs::rename(path, &moved).unwrap();
        std::os::unix::fs::symlink(moved, path).unwrap();
    })
    .await;
    refused_after("replaced", |path| {
        let copy = beside(path, ".copy");
        fs::copy(path, &copy).unwrap();
        fs::rename(copy, path).unwrap();
    })
    .await;
    refused_after("without its write-ahead log", |path| {
        fs::remove_file(beside(path, "-wal")).unwrap();
    })
    .await;
    refused_after("without the index of that", |path| {
        fs::remove_file(beside(path, "-shm")).unwrap();
    })
    .await;
    refused_after("its folder removed", |path| {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    })
    .await;
    refused_after("its folder moved", |path| {
        let folder = path.parent().unwrap();
        fs::rename(folder, beside(folder, ".old")).unwrap();
    })
    .await;
}

#[tokio::test]
async fn store_in_a_moved_folder_works_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    fs::create_dir(&here).unwrap();
    let log = SqliteLog::open(here.join("store.db")).await.unwrap();
    append(&log, 0).await.unwrap();
    fs::rename(&here, &there).unwrap();
    std::os::unix::fs::symlink(&there, &here).unwrap();
    append(&log, 1).await.unwrap();
    log.close().await;
}

#[tokio::test]
async fn store_with_an_emptied_write_ahead_log_confirms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    append(&log, 0).await.unwrap();
    fs::File::create(beside(&path, "-wal")).unwrap();
    assert!(append(&log, 1).await.is_err());
    log.close().await;
}

#[tokio::test]
async fn store_that_is_moved_back_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let away = beside(&path, ".away");
    let log = SqliteLog::open(&path).await.unwrap();
    append(&log, 0).await.unwrap();
    fs::rename(&path, &away).unwrap();
    append(&log, 1).await.unwrap_err();
    fs::rename(&away, &path).unwrap();
    assert_eq!(append(&log, 1).await.unwrap(), Version(2));
    log.close().await;
}

#[tokio::test]
async fn link_to_a_store_shares_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let link = folder.path().join("link.db");
    let direct = SqliteLog::open(&path).await.unwrap();
    symlink(&path, &link).unwrap();
    let linked = SqliteLog::open(&link).await.unwrap();
    assert_eq!(linked.files(), direct.files());
    let stream = StreamName::new(STREAM);
    let LockAttempt::Locked(_lock) = direct.try_lock(&stream).await.unwrap() else {
        panic!("nobody has it")
    };
    let second = linked.try_lock(&stream).await.unwrap();
    assert!(matches!(second, LockAttempt::HeldBy(_)), "{second:?}");
    // The link has a new target. So the store that was opened through the link is not the store that the next process
    // will open.
    append(&linked, 0).await.unwrap();
    fs::remove_file(&link).unwrap();
    symlink(beside(&path, ".other"), &link).unwrap();
    append(&linked, 1).await.unwrap_err();
    append(&direct, 1).await.unwrap();
    direct.close().await;
    linked.close().await;
}
