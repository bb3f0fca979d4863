//! `glob` and `grep`.

use serde_json::json;

use crate::support::{Session, refused};

fn tree() -> Session {
    let session = Session::new();
    session.put(".gitignore", "target/\n*.log\n");
    session.put(".git/config", "needle");
    session.put(".github/ci.yml", "needle: 1\n");
    session.put("src/main.rs", "fn main() {}\n// needle one\n");
    session.put("src/deep/lib.rs", "// Needle two\n");
    session.put("src/out.log", "needle");
    session.put("target/made.rs", "// needle\n");
    session.put("bin.dat", b"needle\0needle\n");
    session
}

#[tokio::test]
async fn glob_follows_the_usual_rules() {
    let session = tree();
    for (pattern, expected) in [
        ("**/*.rs", "src/deep/lib.rs\nsrc/main.rs"),
        ("*.rs", "[no file matches]"),
        ("src/*.rs", "src/main.rs"),
        ("./src/*.rs", "src/main.rs"),
        ("src/**", "src/deep/lib.rs\nsrc/main.rs"),
        ("**/{main,lib}.rs", "src/deep/lib.rs\nsrc/main.rs"),
        (".github/*", ".github/ci.yml"),
        ("**/config", "[no file matches]"),
        ("target/**", "[no file matches]"),
    ] {
        assert_eq!(
            session
                .call("glob", json!({"pattern": pattern}))
                .await
                .as_deref(),
            Ok(expected),
            "{pattern}"
        );
    }
    let absolute = session
        .path("src/*.rs")
        .canonicalize()
        .unwrap_or_else(|_| session.path("src/*.rs"));
    assert_eq!(
        session
            .call("glob", json!({"pattern": absolute}))
            .await
            .as_deref(),
        Ok("src/main.rs")
    );
    refused(
        session.call("glob", json!({"pattern": "a[b"})).await,
        "the pattern is invalid",
    );
}

#[tokio::test]
async fn grep_finds_lines_and_skips_ignored_files() {
    let session = tree();
    for (arguments, expected) in [
        (
            json!({"pattern": "needle"}),
            ".github/ci.yml:1:needle: 1\nsrc/main.rs:2:// needle one",
        ),
        (
            json!({"pattern": "(?i)NEEDLE \\w+"}),
            "src/deep/lib.rs:1:// Needle two\nsrc/main.rs:2:// needle one",
        ),
        (
            json!({"pattern": "needle", "path": "src"}),
            "src/main.rs:2:// needle one",
        ),
        (
            json!({"pattern": "needle", "path": "src/main.rs"}),
            "src/main.rs:2:// needle one",
        ),
        // If a caller names an ignored folder or file, the caller wants the content of that folder or file.
        (
            json!({"pattern": "needle", "path": "target"}),
            "target/made.rs:1:// needle",
        ),
        (
            json!({"pattern": "needle", "path": "src/out.log"}),
            "src/out.log:1:needle",
        ),
        (json!({"pattern": "nothing like it"}), "[no line matches]"),
    ] {
        assert_eq!(
            session.call("grep", arguments.clone()).await.as_deref(),
            Ok(expected),
            "{arguments}"
        );
    }
    refused(
        session.call("grep", json!({"pattern": "a("})).await,
        "the pattern is invalid",
    );
    refused(
        session.call("grep", json!({"pattern": "a\nb"})).await,
        "the pattern is invalid",
    );
    refused(
        session
            .call("grep", json!({"pattern": "a", "path": "none"}))
            .await,
        "does not exist",
    );
}

#[tokio::test]
async fn answers_are_bounded() {
    let session = Session::new();
    for number in 0..1_100 {
        session.put(&format!("f{number:04}"), "");
    }
    session.put("long.txt", format!("x{}\n", "y".repeat(10_000)).repeat(300));
    let answer = session
        .call("glob", json!({"pattern": "**"}))
        .await
        .unwrap();
    assert_eq!(answer.lines().count(), 1_001);
    assert!(answer.ends_with("[only the first 1000 are shown]"));
    let answer = session.call("grep", json!({"pattern": "x"})).await.unwrap();
    assert_eq!(answer.lines().count(), 201);
    assert!(answer.len() < 80_000, "{} bytes", answer.len());
    assert!(answer.lines().next().unwrap().ends_with("yyy …"));
}
