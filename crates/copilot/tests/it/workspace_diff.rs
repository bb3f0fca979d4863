//! The changes in the working directory of a session.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: Done.}]}]";

fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=n", "-c", "user.email=n@localhost"])
        .args(arguments)
        .output();
    let output = output.expect("git runs");
    assert!(output.status.success(), "{output:?}");
}

fn repository() -> TempDir {
    let place = TempDir::new().expect("a temporary folder");
    let folder = place.path();
    git(folder, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(folder.join("changed.txt"), "before\n").expect("a file");
    fs::write(folder.join("removed.txt"), "gone\n").expect("a file");
    fs::write(folder.join("old name.txt"), "1\n2\n3\n4\n").expect("a file");
    git(folder, &["add", "."]);
    git(folder, &["commit", "--quiet", "-m", "first"]);
    git(folder, &["switch", "--quiet", "-c", "work"]);
    fs::write(folder.join("committed.txt"), "own\n").expect("a file");
    git(folder, &["add", "."]);
    git(folder, &["commit", "--quiet", "-m", "second"]);
    fs::write(folder.join("changed.txt"), "after\n").expect("a file");
    fs::remove_file(folder.join("removed.txt")).expect("removed");
    fs::rename(folder.join("old name.txt"), folder.join("new.txt")).expect("renamed");
    fs::write(folder.join("ü.txt"), "new\n").expect("a file");
    place
}

async fn diff(client: &mut TestClient, mode: &str) -> Value {
    let params = json!({ "sessionId": "s", "mode": mode });
    client.request("session.workspaces.diff", &params).await
}

fn types(diff: &Value) -> Vec<(&str, &str)> {
    let changes = diff["changes"].as_array().expect("changes");
    let texts = changes.iter().map(|change| {
        let text = |name: &str| change[name].as_str().expect("a text");
        (text("path"), text("changeType"))
    });
    texts.collect()
}

#[tokio::test]
async fn diff_lists_changed_new_removed_and_renamed_files() {
    let place = repository();
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "workingDirectory": place.path() }))
        .await;
    let unstaged = diff(&mut client, "unstaged").await;
    let own = [
        ("changed.txt", "modified"),
        ("new.txt", "renamed"),
        ("removed.txt", "deleted"),
        ("ü.txt", "added"),
    ];
    assert_eq!(types(&unstaged), own, "{unstaged}");
    assert_eq!(unstaged["isFallback"], false);
    assert_eq!(unstaged["changes"][1]["oldPath"], "old name.txt");
    let text = unstaged["changes"][0]["diff"].as_str().expect("a text");
    assert!(text.contains("-before\n+after\n"), "{text}");

    let branch = diff(&mut client, "branch").await;
    assert_eq!(
        (&branch["mode"], &branch["baseBranch"]),
        (&json!("branch"), &json!("main"))
    );
    assert!(
        types(&branch).contains(&("committed.txt", "added")),
        "{branch}"
    );
    // The user's index is unchanged.
    let status = Command::new("git")
        .current_dir(place.path())
        .args(["diff", "--cached"])
        .output();
    assert!(status.expect("git runs").stdout.is_empty());
}

#[tokio::test]
async fn folder_outside_a_repository_has_no_changes() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let none = diff(&mut client, "session").await;
    let expected = json!({
        "requestedMode": "session", "mode": "unstaged", "isFallback": true, "changes": [],
    });
    assert_eq!(none, expected);
}

/// A repository can make git run programs, here a filter that does not end.
#[tokio::test]
async fn stop_of_the_session_ends_git() {
    let place = repository();
    let folder = place.path();
    git(folder, &["config", "filter.slow.clean", "sleep 600"]);
    fs::write(folder.join(".gitattributes"), "changed.txt filter=slow\n").expect("a file");
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "workingDirectory": folder }))
        .await;
    let params = json!({ "sessionId": "s", "mode": "unstaged" });
    let running = client.send("session.workspaces.diff", &params).await;
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let mut listed = false;
    for _ in 0..10_000 {
        let preview = client.request("allstop.preview", &stop).await;
        listed = preview.to_string().contains("git diff");
        if listed {
            break;
        }
    }
    assert!(listed, "the preview lists git");
    // A second comparison would wait, and start after the stop.
    let second = client.answer("session.workspaces.diff", &params).await;
    let busy = second["error"]["message"].as_str().unwrap_or_default();
    assert!(busy.contains("already compares"), "{second}");
    let stopped = client.request("allstop.stop", &stop).await;
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
    assert!(stopped.to_string().contains("git diff"), "{stopped}");
    assert!(client.answer_to(running).await["error"].is_object());
}
