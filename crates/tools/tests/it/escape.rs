//! Paths that lead out of the working directory.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::{Session, names_in, refused, with_every_tool};

#[tokio::test]
async fn no_path_leads_out_of_the_working_directory() {
    let session = Session::new();
    let outside = session.temporary.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "secret").unwrap();
    session.put("inside/a.txt", "a");
    symlink(&outside, session.path("link")).unwrap();
    symlink("../outside", session.path("relative")).unwrap();
    symlink("link", session.path("link_to_link")).unwrap();
    symlink("../../outside/secret.txt", session.path("inside/file_link")).unwrap();
    symlink("/", session.path("root")).unwrap();
    let absolute = outside.join("secret.txt");
    for path in [
        "../outside/secret.txt",
        "inside/../../outside/secret.txt",
        "./inside/./../../outside",
        "link/secret.txt",
        "link/new.txt",
        "link",
        "relative/secret.txt",
        "link_to_link/secret.txt",
        "link_to_link/../outside/secret.txt",
        "inside/file_link",
        "root/etc/passwd",
        "root/proc/self/root/etc/passwd",
        "/etc/passwd",
        "/proc/self/cwd",
        "/dev/zero",
        "..",
        "/",
        absolute.to_str().unwrap(),
    ] {
        for (tool, answer) in with_every_tool(&session, path).await {
            let error = answer.expect_err(&format!("{tool} {path}"));
            assert!(
                error.contains("outside the working directory"),
                "{tool} {path}: {error}"
            );
        }
    }
    assert_eq!(
        std::fs::read_to_string(outside.join("secret.txt")).unwrap(),
        "secret"
    );
    assert_eq!(names_in(&outside), ["secret.txt"]);
    for pattern in ["../**", "/etc/*", "inside/../../outside/*"] {
        refused(
            session.call("glob", json!({"pattern": pattern})).await,
            "outside the working directory",
        );
    }
    let found = session
        .call("glob", json!({"pattern": "**"}))
        .await
        .unwrap();
    assert_eq!(found, "inside/a.txt", "links are not followed");
    assert_eq!(
        session
            .call("grep", json!({"pattern": "secret"}))
            .await
            .unwrap(),
        "[no line matches]"
    );
}

#[tokio::test]
async fn sibling_with_the_same_name_prefix_is_outside() {
    let session = Session::new();
    let sibling = session.temporary.path().join("work-and-more");
    std::fs::create_dir(&sibling).unwrap();
    std::fs::write(sibling.join("a.txt"), "secret").unwrap();
    let path = sibling.join("a.txt");
    for (tool, answer) in with_every_tool(&session, path.to_str().unwrap()).await {
        assert!(
            answer.is_err_and(|error| error.contains("outside")),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn loops_dangling_links_and_odd_paths_are_errors() {
    let session = Session::new();
    symlink("b", session.path("a")).unwrap();
    symlink("a", session.path("b")).unwrap();
    symlink("nowhere", session.path("dangling")).unwrap();
    let long = "x".repeat(5_000);
    for path in [
        "a",
        "a/b",
        "dangling",
        "dangling/x",
        "none/../a.txt",
        "nul\0nul",
        "",
        &long,
    ] {
        for (tool, answer) in with_every_tool(&session, path).await {
            if path.is_empty() && matches!(tool, "list" | "grep" | "read") {
                continue; // The working directory itself.
            }
            assert!(answer.is_err(), "{tool} {path:?}: {answer:?}");
        }
    }
    assert_eq!(
        session.names(),
        ["a", "b", "dangling"],
        "a file was created"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn link_that_is_swapped_in_is_not_followed() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let session = Session::new();
    let outside = session.temporary.path().join("outside");
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    std::fs::write(outside.join("sub/a.txt"), "secret").unwrap();
    session.put("real/sub/a.txt", "public");
    symlink(&outside, session.path("other")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (over, real, other) = (
            Arc::clone(&over),
            session.path("real"),
            session.path("other"),
        );
        move || {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &real, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the attacker is no part of the session"
    )]
    let attacker = std::thread::spawn(swapping);
    for _ in 0..300 {
        if let Ok(text) = session
            .call("read", json!({"path": "real/sub/a.txt"}))
            .await
        {
            assert_eq!(text, "public");
        }
        drop(
            session
                .call("write", json!({"path": "real/sub/new.txt", "content": "x"}))
                .await,
        );
        if let Ok(text) = session
            .call("grep", json!({"path": "real", "pattern": "secret"}))
            .await
        {
            assert!(!text.contains("a.txt:1:secret"), "{text}");
        }
    }
    over.store(true, Ordering::Relaxed);
    attacker.join().unwrap();
    assert_eq!(names_in(&outside.join("sub")), ["a.txt"], "written outside");
}

/// A hook or a setting in the folder `.git` names a command that the next git call runs.
#[tokio::test]
async fn files_of_git_are_read_and_not_changed() {
    let session = Session::new();
    session.put(".git/config", "[core]");
    symlink(".git", session.path("link")).unwrap();
    for path in [
        ".git/config",
        ".git/hooks/pre-commit",
        "link/config",
        "link/hooks/pre-commit",
        ".GIT/config",
        "sub/.git",
    ] {
        let written = session.call("write", json!({"path": path, "content": "x"}));
        refused(written.await, "belongs to git");
        let edited = json!({"path": path, "old_text": "core", "new_text": "x"});
        let edited = session.call("edit", edited).await.expect_err(path);
        assert!(!edited.is_empty());
    }
    assert_eq!(names_in(&session.path(".git")), ["config"]);
    let read = session.call("read", json!({"path": ".git/config"})).await;
    assert!(read.unwrap().contains("[core]"));
    session
        .call("write", json!({"path": ".gitignore", "content": "x"}))
        .await
        .unwrap();
}
