//! `read`, `write`, `edit`, `list` on ordinary files.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use allstop_core::image::IMAGE_BYTES_MAX;
use serde_json::json;

use crate::support::{Session, refused, with_every_tool};

#[tokio::test]
async fn read_returns_a_file_or_some_of_its_lines() {
    let session = Session::new();
    session.put("a.txt", "one\ntwo\nthree\n");
    session.put("no_end.txt", "one\ntwo");
    session.put("empty.txt", "");
    for (arguments, expected) in [
        (json!({"path": "a.txt"}), "one\ntwo\nthree\n"),
        (json!({"path": "./a.txt", "offset": 3}), "three\n"),
        (
            json!({"path": session.path("a.txt"), "offset": 2, "limit": 5}),
            "two\nthree\n",
        ),
        (
            json!({"path": "a.txt", "limit": 2}),
            "one\ntwo\n\n[lines 1 to 2; continue with offset 3]",
        ),
        (json!({"path": "a.txt", "limit": 3}), "one\ntwo\nthree\n"),
        (json!({"path": "no_end.txt"}), "one\ntwo"),
        (json!({"path": "no_end.txt", "offset": 2}), "two"),
        (json!({"path": "empty.txt"}), "[the file is empty]"),
    ] {
        assert_eq!(
            session.call("read", arguments.clone()).await.as_deref(),
            Ok(expected),
            "{arguments}"
        );
    }
    refused(
        session
            .call("read", json!({"path": "a.txt", "offset": 4}))
            .await,
        "ends at line 3",
    );
    refused(
        session
            .call("read", json!({"path": "no_end.txt", "offset": 3}))
            .await,
        "ends at line 2",
    );
    refused(
        session.call("read", json!({"path": "none.txt"})).await,
        "does not exist",
    );
    let listed = session.call("read", json!({"path": "."})).await;
    assert_eq!(listed, session.call("list", json!({})).await);
    assert!(listed.unwrap().contains("no_end.txt"));
    refused(
        session.call("read", json!({"path": "a.txt/b"})).await,
        "Not a directory",
    );
}

#[tokio::test]
async fn read_returns_an_image_of_bounded_size() {
    let session = Session::new();
    let png = |bytes: usize| {
        let mut data = b"\x89PNG\r\n\x1a\n".to_vec();
        data.resize(bytes, 0);
        data
    };
    // The content decides, not the name.
    session.put("shot.txt", png(11_500));
    let output = session
        .output("read", json!({"path": "shot.txt"}))
        .await
        .unwrap();
    assert_eq!(&*output.content, "image/png, 12 kB");
    assert_eq!(output.images.len(), 1);
    assert_eq!(output.images[0].bytes(), png(11_500));
    session.put("huge.png", png(IMAGE_BYTES_MAX + 1));
    let huge = session.call("read", json!({"path": "huge.png"})).await;
    refused(huge, "`huge.png`: the image is too large");
    session.put("fake.png", b"no\0image");
    let fake = session.call("read", json!({"path": "fake.png"})).await;
    refused(fake, "is a binary file of 8 bytes");
}

#[tokio::test]
async fn read_continues_at_the_reported_offset_without_gaps() {
    let session = Session::new();
    let lines: Vec<String> = (1..=30_000)
        .map(|number| format!("line {number}"))
        .collect();
    session.put("long.txt", lines.join("\n"));
    let (mut offset, mut seen) = (1, Vec::new());
    loop {
        let answer = session
            .call("read", json!({"path": "long.txt", "offset": offset}))
            .await
            .unwrap();
        assert!(answer.len() < 100_000);
        let Some((text, note)) = answer.split_once("\n[lines ") else {
            seen.extend(answer.lines().map(str::to_owned));
            break;
        };
        seen.extend(text.lines().map(str::to_owned));
        offset = note
            .rsplit_once("offset ")
            .unwrap()
            .1
            .trim_end_matches(']')
            .parse()
            .unwrap();
    }
    assert!(seen == lines, "{} lines of {}", seen.len(), lines.len());
}

#[tokio::test]
async fn write_creates_or_replaces_and_keeps_the_mode() {
    let session = Session::new();
    let made = session
        .call(
            "write",
            json!({"path": "new/deep/a.sh", "content": "echo 1\n"}),
        )
        .await;
    assert_eq!(made.as_deref(), Ok("created `new/deep/a.sh`, 7 bytes"));
    let path = session.path("new/deep/a.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let before = std::fs::metadata(&path).unwrap().ino();
    let replaced = session
        .call(
            "write",
            json!({"path": "new/deep/a.sh", "content": "echo 2\n"}),
        )
        .await;
    assert_eq!(replaced.as_deref(), Ok("replaced `new/deep/a.sh`, 7 bytes"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "echo 2\n");
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o751);
    assert_ne!(
        after.ino(),
        before,
        "written in place, so a reader could see half of it"
    );
    assert_eq!(
        crate::support::names_in(path.parent().unwrap()),
        ["a.sh"],
        "a temporary file was left"
    );
}

#[tokio::test]
async fn write_through_a_link_changes_its_target() {
    let session = Session::new();
    let target = session.put("real.txt", "old");
    std::os::unix::fs::symlink("real.txt", session.path("link.txt")).unwrap();
    session
        .call("write", json!({"path": "link.txt", "content": "new"}))
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(target).unwrap(), "new");
    assert!(session.path("link.txt").is_symlink());
}

#[tokio::test]
async fn edit_replaces_the_only_occurrence() {
    let session = Session::new();
    let path = session.put("a.rs", "fn a() {}\nfn b() {}\n");
    let edited = session
        .call(
            "edit",
            json!({"path": "a.rs", "old": "b() {}", "new": "c() {\n}"}),
        )
        .await;
    assert_eq!(edited.as_deref(), Ok("edited `a.rs` at line 2"));
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "fn a() {}\nfn c() {\n}\n"
    );
    assert_eq!(session.names(), ["a.rs"]);
}

#[tokio::test]
async fn edit_reports_the_reason_of_a_refusal() {
    let session = Session::new();
    let content = "aaa\nb\r\nc\r\n";
    let path = session.put("a.txt", content);
    for (old, new, says) in [
        ("aa", "x", "2 times"),
        ("a", "x", "3 times"),
        ("zzz", "x", "`old` is not in `a.txt`; nothing was changed"),
        ("b\nc", "x", "the file's lines end with \\r\\n"),
        ("b", "b", "are the same"),
        ("", "x", "`old`: "),
    ] {
        let answer = session
            .call("edit", json!({"path": "a.txt", "old": old, "new": new}))
            .await;
        refused(answer, says);
    }
    refused(
        session
            .call("edit", json!({"path": "none", "old": "a", "new": "b"}))
            .await,
        "does not exist",
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    assert_eq!(session.names(), ["a.txt"]);
}

#[tokio::test]
async fn edit_keeps_bytes_that_are_not_utf_8() {
    let session = Session::new();
    let path = session.put("latin1.txt", b"caf\xe9 one \xff\n");
    session
        .call(
            "edit",
            json!({"path": "latin1.txt", "old": "one", "new": "zwei"}),
        )
        .await
        .unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"caf\xe9 zwei \xff\n");
}

#[tokio::test]
async fn list_is_sorted_and_shows_kinds() {
    let session = Session::new();
    assert_eq!(
        session.call("list", json!({})).await.as_deref(),
        Ok("[the folder is empty]")
    );
    session.put("b.txt", "");
    session.put("a/x.txt", "");
    session.put(".hidden", "");
    std::os::unix::fs::symlink("/etc/passwd", session.path("link")).unwrap();
    crate::support::mkfifo(&session.path("pipe"));
    let expected = ".hidden\na/\nb.txt\nlink -> /etc/passwd\npipe (not a regular file)";
    assert_eq!(
        session.call("list", json!({})).await.as_deref(),
        Ok(expected)
    );
    assert_eq!(
        session.call("list", json!({"path": "a"})).await.as_deref(),
        Ok("x.txt")
    );
    refused(
        session.call("list", json!({"path": "b.txt"})).await,
        "is not a folder",
    );
    refused(
        session.call("list", json!({"path": "none"})).await,
        "does not exist",
    );
}

#[tokio::test]
async fn list_of_a_large_folder_is_bounded() {
    let session = Session::new();
    for number in 0..1_200 {
        session.put(&format!("many/{number:04}"), "");
    }
    let answer = session.call("list", json!({"path": "many"})).await.unwrap();
    assert_eq!(answer.lines().count(), 1_001);
    assert!(
        answer.ends_with("\n0999\n[and 200 more]"),
        "{}",
        &answer[answer.len() - 40..]
    );
}

/// A reserved file is closed to file tools: under its name, through symbolic and hard links, and even before it exists.
/// Other files in the same folder stay accessible.
#[tokio::test]
async fn reserved_files_are_neither_read_nor_changed() {
    let session = Session::with(
        |workspace| {
            let store = workspace.folder().join("store.db");
            let locks = workspace.folder().join("store.db.locks");
            let journal = workspace.folder().join("store.db-journal");
            workspace.reserve([store, locks, journal])
        },
        |shell| shell,
    );
    let store = session.put("store.db", "secret");
    session.put("store.db.locks/s1", "secret");
    session.put("other/store.db", "secret");
    std::fs::hard_link(&store, session.path("hard")).unwrap();
    std::os::unix::fs::symlink("store.db", session.path("soft")).unwrap();
    std::os::unix::fs::symlink("store.db.locks", session.path("folder")).unwrap();
    for path in [
        "store.db",
        "./other/../store.db",
        "hard",
        "soft",
        "store.db.locks/s1",
        "folder/s1",
        "store.db.locks/new",
        "store.db.locks",
    ] {
        for (tool, answer) in with_every_tool(&session, path).await {
            // `list` with the path of a file, and the other tools with the path of a folder, may return a different
            // error.
            if tool != "list" && !(path == "store.db.locks" && tool != "grep") {
                refused(answer, "belongs to Allstop");
            }
        }
    }
    for folder in ["store.db.locks", "folder"] {
        refused(
            session.call("list", json!({"path": folder})).await,
            "belongs to Allstop",
        );
    }
    for path in ["store.db-journal", "store.db-journal/x"] {
        let arguments = json!({"path": path, "content": "x"});
        refused(session.call("write", arguments).await, "belongs to Allstop");
    }
    let found = session.call("grep", json!({"pattern": "secret"})).await;
    assert_eq!(found.unwrap(), "other/store.db:1:secret");
    let arguments = json!({"path": "other/store.db", "content": "x"});
    session.call("write", arguments).await.unwrap();
    assert_eq!(std::fs::read_to_string(store).unwrap(), "secret");
}

/// The working directory itself may belong to the store. In that case no name in the working directory is accessible.
#[tokio::test]
async fn reserved_working_folder_is_neither_read_nor_changed() {
    let session = Session::with(
        |workspace| {
            let own = workspace.folder().to_owned();
            workspace.reserve([own])
        },
        |shell| shell,
    );
    session.put("answers", "secret");
    for (tool, answer) in with_every_tool(&session, "answers").await {
        if tool != "list" {
            refused(answer, "belongs to Allstop");
        }
    }
    refused(
        session.call("list", json!({"path": "."})).await,
        "belongs to Allstop",
    );
    let content = std::fs::read_to_string(session.path("answers"));
    assert_eq!(content.unwrap(), "secret");
}

/// If the folders of a reserved file are missing, a call could create the file together with these folders.
#[tokio::test]
async fn reserved_file_in_a_missing_folder_is_not_created() {
    let session = Session::with(
        |workspace| {
            let answers = workspace.folder().join("deep/er/answers");
            workspace.reserve([answers])
        },
        |shell| shell,
    );
    let arguments = json!({"path": "deep/er/answers/a", "content": "x"});
    refused(session.call("write", arguments).await, "belongs to Allstop");
    assert!(!session.path("deep").exists());
}
