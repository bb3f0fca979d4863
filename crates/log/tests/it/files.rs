//! Files and folders that are no store, or cannot be written: one line that says so, and nothing is changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use allstop_log::{AppendId, Log, LogError, LogErrorKind, SqliteLog, StreamName, Version};

/// The process that the tests start.
pub(crate) fn helper() -> &'static str {
    env!("CARGO_BIN_EXE_allstop-log-helper")
}

async fn fails(path: &Path, kind: LogErrorKind) -> LogError {
    let error = SqliteLog::open(path).await.unwrap_err();
    assert_eq!(
        error.kind(),
        kind,
        "{error} ({:?})",
        std::error::Error::source(&error)
    );
    let text = error.to_string();
    assert!(
        !text.contains('\n') && text.contains(&*path.to_string_lossy()),
        "{text}"
    );
    assert!(error.hint().is_some());
    error
}

async fn filled(path: &Path) {
    let log = SqliteLog::open(path).await.unwrap();
    for n in 0..200_u64 {
        let record = format!("record {n} {}", "x".repeat(500)).into();
        let id = AppendId(u128::from(n));
        log.append(&StreamName::new("s"), Version(n), id, vec![record])
            .await
            .unwrap();
    }
    log.close().await;
}

#[tokio::test]
async fn garbage_and_other_programs_files_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let zeros = vec![0; 8_192];
    let cut = [&b"SQLite format 3\0"[..], &[7; 300]].concat();
    for garbage in [&b"not a store"[..], &zeros, &cut, b"{\"a\": 1}\n"] {
        fs::write(&path, garbage).unwrap();
        fails(&path, LogErrorKind::Corrupt).await;
        assert_eq!(fs::read(&path).unwrap(), garbage);
    }
    fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE streams (name TEXT)")
        .unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    fails(&path, LogErrorKind::Corrupt).await;
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_new_store_is_for_its_owner_alone_and_nothing_else_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["store.db", "store.db-shm", "store.db-wal"]);
}

#[tokio::test]
async fn the_write_ahead_log_stays_short() {
    const APPENDS: u64 = 200;
    const BYTES: usize = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    for n in 0..APPENDS {
        let id = AppendId(u128::from(n));
        let record = vec![b'x'; BYTES].into();
        let appended = log.append(&StreamName::new("s"), Version(n), id, vec![record]);
        appended.await.unwrap();
    }
    log.close().await;
    let written = fs::metadata(folder.path().join("store.db-wal")).unwrap();
    assert!(
        written.len() < 3 << 20,
        "{} bytes are read again by each start",
        written.len()
    );
    let log = SqliteLog::open(&path).await.unwrap();
    let found = log.read(&StreamName::new("s"), Version(1), usize::MAX);
    assert_eq!(found.await.unwrap().len() as u64, APPENDS);
    log.close().await;
}

#[tokio::test]
async fn a_newer_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    SqliteLog::open(&path).await.unwrap().close().await;
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 2).unwrap();
    drop(newer);
    fails(&path, LogErrorKind::NewerVersion).await;
}

#[tokio::test]
async fn a_missing_folder_and_a_folder_in_place_of_the_file_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fails(
        &folder.path().join("missing/store.db"),
        LogErrorKind::NotFound,
    )
    .await;
    fails(folder.path(), LogErrorKind::Corrupt).await;
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    fails(&file.join("store.db"), LogErrorKind::NotFound).await;
    // An empty file is a new store.
    let empty = folder.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    filled(&empty).await;
}

#[tokio::test]
async fn damage_is_reported_and_never_read_as_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    // SQLite by itself puts the write-ahead log away: then all of it is in one file.
    let alone = rusqlite::Connection::open(&path).unwrap();
    alone
        .query_row("SELECT count(*) FROM records", [], |_| Ok(()))
        .unwrap();
    drop(alone);
    let whole = fs::read(&path).unwrap();
    let page = 4_096;
    let mut seen = 0;
    for at in (page..whole.len()).step_by(page) {
        let mut damaged = whole.clone();
        damaged[at..at + page].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        let log = match SqliteLog::open(&path).await {
            Ok(log) => log,
            Err(error) => {
                assert_eq!(error.kind(), LogErrorKind::Corrupt);
                continue;
            }
        };
        match log.read(&StreamName::new("s"), Version(1), 1_000).await {
            Ok(records) => assert!(
                records.is_empty() || records.len() == 200,
                "{}",
                records.len()
            ),
            Err(error) => {
                assert_eq!(error.kind(), LogErrorKind::Corrupt, "{error}");
                seen += 1;
            }
        }
        log.close().await;
    }
    assert!(seen > 10, "most pages hold records: {seen}");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let log = SqliteLog::open(&path).await;
    let kind = match &log {
        Ok(log) => log
            .read(&StreamName::new("s"), Version(1), 1_000)
            .await
            .map(drop)
            .unwrap_err()
            .kind(),
        Err(error) => error.kind(),
    };
    assert_eq!(kind, LogErrorKind::Corrupt);
}

/// What the helper says about a store, run as a user without rights where the tests run as root.
fn tried(path: &Path, shell: &str) -> String {
    // A copy in a place that is open to all: the build folder may be closed to other users, as in the home of root.
    let open = tempfile::tempdir().unwrap();
    set_mode(open.path(), 0o755);
    let copy = open.path().join("helper");
    fs::copy(helper(), &copy).unwrap();
    set_mode(&copy, 0o755);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell} exec \"$@\""), "sh"])
        .arg(copy)
        .arg("try")
        .arg(path);
    command.arg("100000");
    if is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn what_cannot_be_written_is_reported_as_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // A folder that cannot be written: no store can be made in it.
    set_mode(folder.path(), 0o555);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // A store that cannot be written, in a folder that can.
    set_mode(folder.path(), 0o777);
    filled(&path).await;
    set_mode(&path, 0o444);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // A store that can be written, in a folder that cannot: there is no place for the write-ahead log.
    set_mode(&path, 0o666);
    set_mode(folder.path(), 0o555);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // And a folder that cannot be looked into.
    set_mode(folder.path(), 0o000);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    set_mode(folder.path(), 0o777);
}

#[tokio::test]
async fn a_write_that_the_system_refuses_is_an_error_and_leaves_the_store_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    set_mode(folder.path(), 0o777);
    set_mode(&path, 0o666);
    // A limit of 64 kB on each file (in blocks of 512 bytes), where the record takes 100.
    let said = tried(&path, "trap '' XFSZ; ulimit -f 128;");
    assert!(
        said.starts_with("Io: ") || said.starts_with("Full: "),
        "{said}"
    );
    let log = SqliteLog::open(&path).await.unwrap();
    assert_eq!(
        log.read(&StreamName::new("s"), Version(1), 1_000)
            .await
            .unwrap()
            .len(),
        200
    );
}
