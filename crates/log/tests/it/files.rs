//! Paths that do not lead to a store, or that are read-only. The error must be one line, and nothing may change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use allstop_log::{AppendId, Log, LogError, LogErrorKind, SqliteLog, StreamName, Version};

/// Path of the helper program.
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
    filled_with(path, 200).await;
}

pub(crate) async fn filled_with(path: &Path, records: u64) {
    let log = SqliteLog::open(path).await.unwrap();
    for n in 0..records {
        let record = format!("record {n} {}", "x".repeat(500)).into();
        let id = AppendId(u128::from(n));
        log.append(&StreamName::new("s"), Version(n), id, vec![record])
            .await
            .unwrap();
    }
    log.close().await;
}

#[tokio::test]
async fn foreign_files_are_refused_and_not_changed() {
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
async fn new_store_is_private_and_leaves_no_temporary_file() {
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

/// Regression: a user removed only `store.db`. The next store contained the sessions of the removed store, or was damaged.
#[tokio::test]
async fn new_store_does_not_read_the_log_of_a_removed_store() {
    for records in [1, 200, 2_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        filled_with(&path, records).await;
        fs::remove_file(&path).unwrap();
        let log = SqliteLog::open(&path).await.unwrap();
        assert_eq!(log.list("").await.unwrap(), [], "{records} records");
        log.close().await;
        filled_with(&path, 10).await;
        let log = SqliteLog::open(&path).await.unwrap();
        let read = log.read(&StreamName::new("s"), Version(1), usize::MAX);
        assert_eq!(read.await.unwrap().len(), 10, "{records} records");
        log.close().await;
    }
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

/// A back-up of only `store.db` after a clean end has every record.
#[tokio::test]
async fn copy_of_a_store_that_was_written_back_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let log = SqliteLog::open(&path).await.unwrap();
    log.write_back().await.unwrap();
    log.close().await;
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    let log = SqliteLog::open(&copy).await.unwrap();
    let found = log.read(&StreamName::new("s"), Version(1), usize::MAX);
    assert_eq!(found.await.unwrap().len(), 200);
    log.close().await;
}

/// The write-back makes the log of all processes shorter. A process that has the store open continues.
#[tokio::test]
async fn write_back_disturbs_no_other_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let (one, other) = (SqliteLog::open(&path), SqliteLog::open(&path));
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    let stream = StreamName::new("s");
    for n in 200..220_u64 {
        one.write_back().await.unwrap();
        let log = if n % 2 == 0 { &other } else { &one };
        let appended = log.append(&stream, Version(n), AppendId(n.into()), vec!["more".into()]);
        assert_eq!(appended.await.unwrap(), Version(n + 1));
        for log in [&one, &other] {
            let read = log.read(&stream, Version(1), usize::MAX).await.unwrap();
            assert_eq!(read.len() as u64, n + 1);
        }
    }
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_newer_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    SqliteLog::open(&path).await.unwrap().close().await;
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 4).unwrap();
    drop(newer);
    fails(&path, LogErrorKind::NewerVersion).await;
}

#[tokio::test]
async fn missing_folder_and_folder_as_store_have_clear_errors() {
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
    // An empty file becomes a new store.
    let empty = folder.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    filled(&empty).await;
}

#[tokio::test]
async fn damage_is_reported_and_never_read_as_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    // When SQLite's own connection is closed, SQLite deletes the write-ahead log, so that all data is in one file.
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
                assert_eq!(error.kind(), LogErrorKind::DamagedStream, "{error}");
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
    let kinds = [LogErrorKind::Incomplete, LogErrorKind::DamagedStream];
    assert!(kinds.contains(&kind), "{kind:?}");
}

/// Output of the helper program for a store. If the tests run as root, the helper runs as a user without rights.
fn tried(path: &Path, shell: &str) -> String {
    // The helper program is copied to a folder that all users can read. Other users may have no access to the build
    // folder, for example if this folder is in root's home.
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
async fn store_without_write_permission_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // No store can be created in a read-only folder.
    set_mode(folder.path(), 0o555);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // A read-only store cannot be opened, even in a writable folder.
    set_mode(folder.path(), 0o777);
    filled(&path).await;
    set_mode(&path, 0o444);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // A writable store in a read-only folder cannot be opened: SQLite cannot create the write-ahead log.
    set_mode(&path, 0o666);
    set_mode(folder.path(), 0o555);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    // A store in a folder without search permission cannot be opened.
    set_mode(folder.path(), 0o000);
    assert!(
        tried(&path, "").starts_with("ReadOnly: "),
        "{}",
        tried(&path, "")
    );
    set_mode(folder.path(), 0o777);
}

#[tokio::test]
async fn refused_write_is_an_error_and_leaves_the_store_intact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    set_mode(folder.path(), 0o777);
    set_mode(&path, 0o666);
    // Sets a limit of 64 kB for each file (in blocks of 512 bytes). The record has 100 kB.
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

#[tokio::test]
async fn hard_link_to_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let link = folder.path().join("link.db");
    fs::hard_link(&path, &link).unwrap();
    for path in [&path, &link] {
        fails(path, LogErrorKind::OtherPath).await;
    }
    fs::remove_file(link).unwrap();
    SqliteLog::open(&path).await.unwrap().close().await;
}

/// A process was killed while it created the store. Its temporary link is no second path.
#[tokio::test]
async fn link_of_a_killed_process_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let left = folder.path().join("store.db.new-1");
    fs::hard_link(&path, &left).unwrap();
    SqliteLog::open(&path).await.unwrap().close().await;
    assert!(!left.exists());
}

/// A process was killed before its temporary file became the store.
#[tokio::test]
async fn unfinished_store_of_a_killed_process_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let left = folder.path().join("store.db.new-1");
    fs::write(&left, "half of a store").unwrap();
    SqliteLog::open(&path).await.unwrap().close().await;
    assert!(!left.exists());
}

/// A user may hold a lock on the folder, for example `flock FOLDER allstop …`.
#[tokio::test]
async fn lock_on_the_folder_does_not_keep_a_new_store_from_opening() {
    let folder = tempfile::tempdir().unwrap();
    let locked = fs::File::open(folder.path()).unwrap();
    locked.lock().unwrap();
    filled_with(&folder.path().join("store.db"), 2).await;
}

/// Another user must not be able to replace a lock by a link to a file of the owner.
#[tokio::test]
async fn lock_folder_is_private_and_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let locks = folder.path().join("store.db.locks");
    fs::create_dir(&locks).unwrap();
    set_mode(&locks, 0o777);
    let victim = folder.path().join("victim");
    fs::write(&victim, "text").unwrap();
    std::os::unix::fs::symlink(&victim, locks.join("a")).unwrap();
    let log = SqliteLog::open(&path).await.unwrap();
    log.try_lock(&StreamName::new("session/a"))
        .await
        .unwrap_err();
    assert_eq!(fs::read(&victim).unwrap(), b"text");
    let _lock = log.try_lock(&StreamName::new("session/b")).await.unwrap();
    for (path, mode) in [(locks.clone(), 0o700), (locks.join("b"), 0o600)] {
        let found = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }
    log.close().await;
}

#[tokio::test]
async fn lock_files_of_killed_processes_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    let lock = log
        .try_lock(&StreamName::new("session/used"))
        .await
        .unwrap();
    let locks = folder.path().join("store.db.locks");
    for n in 0..1_000 {
        fs::write(locks.join(format!("left{n}")), "{}").unwrap();
    }
    let other = SqliteLog::open(&path).await.unwrap();
    // This answer comes after the removal.
    other.list("").await.unwrap();
    let left: Vec<_> = fs::read_dir(&locks).unwrap().collect();
    assert_eq!(left.len(), 1);
    drop(lock);
    other.close().await;
    log.close().await;
}
