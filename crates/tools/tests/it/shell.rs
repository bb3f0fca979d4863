//! `shell` in the foreground.

use std::time::{Duration, Instant};

use allstop_tools::BackgroundHost as _;
use serde_json::json;

use crate::support::{Session, is_alive, refused, wait_until};

#[tokio::test]
async fn a_command_answers_with_its_output_and_its_exit_code() {
    let session = Session::new();
    session.put("a.txt", "hello\n");
    for (command, expected) in [
        ("cat a.txt", "hello\n"),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
        ("true", "[no output]"),
        ("exit 7", "[no output]\n[exit code 7]"),
        ("echo x; exit 1", "x\n\n[exit code 1]"),
        ("kill -9 $$", "[no output]\n[killed by signal 9]"),
        ("cat", "[no output]"),
        ("printf '\\377'", "\u{fffd}"),
    ] {
        assert_eq!(
            session
                .call("shell", json!({"command": command}))
                .await
                .as_deref(),
            Ok(expected),
            "{command}"
        );
    }
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}

#[tokio::test]
async fn a_command_that_cannot_start_is_an_error() {
    let session = Session::with(
        |w| w,
        |shell| allstop_tools::ShellConfig {
            program: "/no/such/shell".into(),
            ..shell
        },
    );
    for background in [false, true] {
        let answer = session
            .call(
                "shell",
                json!({"command": "true", "background": background}),
            )
            .await;
        refused(answer, "cannot start \"/no/such/shell\": No such file");
    }
    let session = Session::new();
    let long = "x".repeat(1_000_000);
    refused(
        session.call("shell", json!({"command": long})).await,
        "rgument list too long",
    );
    assert!(
        session
            .call("shell", json!({"command": "a\0b"}))
            .await
            .is_err()
    );
    assert!(
        session
            .call("shell", json!({"command": "true", "timeout_s": 1e300}))
            .await
            .is_err()
    );
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}

#[tokio::test]
async fn two_hundred_megabytes_pass_through_bounded_memory() {
    let session = Session::new();
    let answer = session.call(
        "shell",
        json!({"command": "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end"}),
    );
    let answer = answer.await.unwrap();
    assert!(answer.len() < 40_000, "{} bytes", answer.len());
    assert!(answer.starts_with("xxx") && answer.ends_with("x\nend\n"));
    assert!(answer.contains(" of 200000005 bytes left out; the first 67108864 bytes are in "));
    let file = std::fs::read_dir(session.temporary.path().join("spill"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 * 1024 * 1024);
    // The peak of the whole test binary: far below what passed.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    });
    assert!(peak.is_none_or(|kb| kb < 150_000), "{peak:?} kB");
    let path = file.path();
    let part = session
        .call("read", json!({"path": path, "limit": 1}))
        .await
        .unwrap();
    assert!(
        part.starts_with("xxx"),
        "the model cannot look into the file"
    );
}

#[tokio::test]
async fn a_timeout_stops_the_whole_tree_and_keeps_what_was_printed() {
    let session = Session::new();
    let command = "echo before; trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > pid; sleep 600' & sleep 600 & wait";
    let started = Instant::now();
    let answer = session
        .call("shell", json!({"command": command, "timeout_s": 0.5}))
        .await;
    refused(answer.clone(), "before\n");
    refused(
        answer,
        "[the command ran longer than 0.5 s: it and all that it had started were stopped]",
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let pid = std::fs::read_to_string(session.path("pid")).unwrap();
    assert!(!is_alive(&pid));
    assert!(session.host.works().is_empty());
    // The call's scope goes on: only the command was stopped.
    assert_eq!(
        session
            .call("shell", json!({"command": "echo next"}))
            .await
            .as_deref(),
        Ok("next\n")
    );
}

#[tokio::test]
async fn a_timeout_that_is_not_reached_changes_nothing() {
    let session = Session::new();
    let answer = session
        .call("shell", json!({"command": "echo x", "timeout_s": 60}))
        .await;
    assert_eq!(answer.as_deref(), Ok("x\n"));
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}

#[tokio::test]
async fn a_child_that_holds_the_output_delays_nothing_and_is_named() {
    let session = Session::new();
    let started = Instant::now();
    let answer = session
        .call("shell", json!({"command": "echo now; sleep 600 &"}))
        .await
        .unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        answer,
        "now\n\n[1 process still runs in the background as bg_1: `sleep 600`]"
    );
    let works = session.host.works();
    assert_eq!(works.len(), 1);
    assert!(works[0].is_running());
    assert!(session.turn.is_quiet(), "it still belongs to the turn");
    assert_eq!(
        session.root.running().len(),
        1,
        "{:?}",
        session.root.running()
    );
    assert_eq!(&*session.root.running()[0].id, "bg_1");
    let answer = session
        .call("background", json!({"action": "stop", "id": "bg_1"}))
        .await;
    assert_eq!(
        answer.as_deref(),
        Ok("bg_1 was stopped; nothing of it runs any more")
    );
    assert!(session.root.is_quiet());
}

#[tokio::test]
async fn the_rest_of_a_pipeline_is_no_background_work() {
    let session = Session::new();
    for _ in 0..20 {
        let answer = session
            .call("shell", json!({"command": "(exec sleep 0.01) & echo x"}))
            .await;
        assert_eq!(answer.as_deref(), Ok("x\n"));
    }
    assert!(session.host.works().is_empty());
}

#[tokio::test]
async fn what_a_left_over_child_prints_later_is_in_its_file() {
    let session = Session::new();
    let command = "echo first; (while [ ! -e go ]; do sleep 0.01; done; echo second) &";
    let answer = session
        .call("shell", json!({"command": command}))
        .await
        .unwrap();
    assert!(
        answer.starts_with("first\n\n[1 process still runs") || answer.contains("2 processes"),
        "{answer}"
    );
    let work = session.host.works().remove(0);
    session.put("go", "");
    assert_eq!(work.ended().await.state.as_str(), "finished");
    wait_until("the output is drained", || {
        work.output() == "first\nsecond\n"
    })
    .await;
    assert_eq!(
        std::fs::read_to_string(work.output_file.as_ref().unwrap()).unwrap(),
        "first\nsecond\n"
    );
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}
