//! Special files, oversized or binary content, and full disks.

use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use allstop_tools::FolderAccess;
use serde_json::json;

use crate::support::{Session, mkfifo, names_in, refused, with_every_tool};

#[tokio::test]
async fn special_files_are_refused_without_blocking() {
    let other = tempfile::tempdir().unwrap();
    mkfifo(&other.path().join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(other.path().join("socket")).unwrap();
    let session = Session::with(
        |workspace| {
            let workspace = workspace
                .allow(other.path(), FolderAccess::ReadWrite)
                .unwrap();
            workspace.allow("/dev", FolderAccess::ReadWrite).unwrap()
        },
        |shell| shell,
    );
    let pipe = other.path().join("pipe");
    let socket = other.path().join("socket");
    for (path, says) in [
        (pipe.to_str().unwrap(), "is a named pipe"),
        (socket.to_str().unwrap(), "is a socket"),
        ("/dev/zero", "is a device"),
        ("/dev/tty", "is a device"),
        ("/dev/full", "is a device"),
    ] {
        for (tool, answer) in with_every_tool(&session, path).await {
            let error = answer.expect_err(&format!("{tool} {path}"));
            let says = if tool == "list" {
                "is not a folder"
            } else {
                says
            };
            assert!(error.contains(says), "{tool} {path}: {error}");
        }
    }
    assert_eq!(names_in(other.path()), ["pipe", "socket"]);
}

#[tokio::test]
async fn allowed_folder_may_be_read_only() {
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("a.txt"), "a").unwrap();
    let allow = |workspace: allstop_tools::Workspace| {
        workspace.allow(other.path(), FolderAccess::Read).unwrap()
    };
    let session = Session::with(allow, |shell| shell);
    let path = other.path().join("a.txt");
    assert_eq!(
        session.call("read", json!({"path": path})).await.as_deref(),
        Ok("a")
    );
    refused(
        session
            .call("write", json!({"path": path, "content": "b"}))
            .await,
        "may be read but not written",
    );
    refused(
        session
            .call("edit", json!({"path": path, "old": "a", "new": "b"}))
            .await,
        "may be read but not written",
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a");
}

#[tokio::test]
async fn sparse_gigabyte_file_is_refused_quickly() {
    let session = Session::new();
    let path = session.path("sparse.bin");
    File::create(&path).unwrap().set_len(1 << 30).unwrap();
    refused(
        session.call("read", json!({"path": "sparse.bin"})).await,
        "is a binary file of 1073741824 bytes",
    );
    refused(
        session
            .call(
                "edit",
                json!({"path": "sparse.bin", "old": "a", "new": "b"}),
            )
            .await,
        "more than",
    );
    assert_eq!(
        session
            .call("grep", json!({"pattern": "a"}))
            .await
            .as_deref(),
        Ok("[no line matches]")
    );
    // A sparse 64 MiB file that begins with text and consists of one line.
    let path = session.put("late.txt", "x".repeat(10_000));
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 26)
        .unwrap();
    let text = session
        .call("read", json!({"path": "late.txt", "limit": 1}))
        .await
        .unwrap();
    assert!(
        text.len() < 5_000 && text.contains("67104768 more bytes in this line"),
        "{} bytes",
        text.len()
    );
}

#[tokio::test]
async fn invalid_utf_8_is_shown_with_a_note() {
    let session = Session::new();
    session.put("latin1.txt", b"caf\xe9\n");
    let text = session
        .call("read", json!({"path": "latin1.txt"}))
        .await
        .unwrap();
    assert_eq!(
        text,
        "caf\u{fffd}\n\n[some bytes are not UTF-8; they are shown as \u{fffd}]"
    );
    let text = session
        .call("grep", json!({"pattern": "caf"}))
        .await
        .unwrap();
    assert_eq!(text, "latin1.txt:1:caf\u{fffd}");
    let name = std::ffi::OsStr::from_bytes(b"odd\xff.txt");
    std::fs::write(session.path("").join(name), "odd").unwrap();
    assert!(
        session
            .call("list", json!({}))
            .await
            .unwrap()
            .contains("odd\u{fffd}.txt")
    );
    assert!(
        session
            .call("glob", json!({"pattern": "odd*"}))
            .await
            .unwrap()
            .contains("odd\u{fffd}.txt")
    );
    assert!(
        session
            .call("grep", json!({"pattern": "odd"}))
            .await
            .unwrap()
            .contains("odd\u{fffd}.txt:1:odd")
    );
}

#[tokio::test]
async fn read_only_file_is_not_replaced() {
    // Root can write every ordinary file, so the first part uses `/proc`, which refuses root too.
    let session = Session::with(
        |workspace| workspace.allow("/proc", FolderAccess::ReadWrite).unwrap(),
        |shell| shell,
    );
    for path in ["/proc/version", "/proc/new.txt"] {
        let answer = session
            .call("write", json!({"path": path, "content": "x"}))
            .await;
        assert!(answer.is_err(), "{path}: {answer:?}");
    }
    if !rustix::process::geteuid().is_root() {
        let path = session.put("read_only.txt", "a");
        std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        refused(
            session
                .call("write", json!({"path": "read_only.txt", "content": "b"}))
                .await,
            "no permission to write",
        );
        session.put("closed/a.txt", "a");
        std::fs::set_permissions(session.path("closed"), Permissions::from_mode(0o555)).unwrap();
        refused(
            session
                .call("write", json!({"path": "closed/b.txt", "content": "b"}))
                .await,
            "ermission denied",
        );
        refused(
            session
                .call(
                    "edit",
                    json!({"path": "closed/a.txt", "old": "a", "new": "b"}),
                )
                .await,
            "ermission denied",
        );
        assert_eq!(names_in(&session.path("closed")), ["a.txt"]);
    }
}

#[tokio::test]
async fn endless_ignore_files_do_not_block() {
    let session = Session::new();
    session.put("a.txt", "x");
    session.put("pipe/a.txt", "x");
    session.put("zero/a.txt", "x");
    session.put("huge/a.txt", "x");
    mkfifo(&session.path("pipe/.gitignore"));
    symlink("/dev/zero", session.path("zero/.ignore")).unwrap();
    File::create(session.path("huge/.gitignore"))
        .unwrap()
        .set_len(1 << 33)
        .unwrap();
    assert_eq!(
        session
            .call("glob", json!({"pattern": "**/a.txt"}))
            .await
            .as_deref(),
        Ok("a.txt")
    );
    assert_eq!(
        session
            .call("grep", json!({"pattern": "x"}))
            .await
            .as_deref(),
        Ok("a.txt:1:x")
    );
    mkfifo(&session.path(".gitignore"));
    let answer = session.call("grep", json!({"pattern": "x"})).await.unwrap();
    assert!(answer.contains("could not be searched"), "{answer}");
}

#[test]
fn full_disk_leaves_only_the_old_file() {
    // A limit on the size of files makes a write fail like a full disk. The limit applies to a whole process, so a
    // child process sets it.
    let limited =
        "ulimit -f 8; trap '' XFSZ; exec \"$0\" --exact hostile::the_child_with_a_full_disk";
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .env("ALLSTOP_TEST_FULL_DISK", "yes")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn the_child_with_a_full_disk() {
    #[expect(clippy::disallowed_methods, reason = "the parent test calls this one")]
    if std::env::var_os("ALLSTOP_TEST_FULL_DISK").is_none() {
        return;
    }
    let session = Session::new();
    session.put("a.txt", "old");
    let content = "x".repeat(1_000_000);
    for (tool, arguments) in [
        ("write", json!({"path": "a.txt", "content": content})),
        ("write", json!({"path": "new.txt", "content": content})),
        (
            "edit",
            json!({"path": "a.txt", "old": "old", "new": content}),
        ),
    ] {
        refused(session.call(tool, arguments).await, "File too large");
    }
    assert_eq!(
        std::fs::read_to_string(session.path("a.txt")).unwrap(),
        "old"
    );
    assert_eq!(session.names(), ["a.txt"], "a temporary file was left");
}
