//! `shell` in the foreground.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, Cause, CauseKind, Extent};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec};
use allstop_tools::{
    BackgroundHost as _, CallLink, CallObserver, CallProgress, ToolError, ToolOutput,
};
use serde_json::json;

use crate::support::{Session, is_alive, refused, wait_until};

#[tokio::test]
async fn command_returns_its_output_and_exit_code() {
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
async fn failed_command_with_a_hidden_variable_gets_a_hint() {
    let session = Session::with(|w| w, |shell| shell.env_hidden(["CARGO_PKG_NAME"]));
    let hint = "[CARGO_PKG_NAME is hidden from commands; to allow it, add it to `env` in the section `[shell]` of the \
                configuration]";
    for (command, is_told) in [
        ("test -n \"$CARGO_PKG_NAME\"", true),
        ("printf 'set CARGO_%s\\n' PKG_NAME; exit 2", true),
        ("echo $CARGO_PKG_NAME", false),
        ("exit 1", false),
    ] {
        let call = session.call("shell", json!({"command": command}));
        let answer = call.await.unwrap();
        assert_eq!(answer.ends_with(hint), is_told, "{command}: {answer}");
    }
}

#[tokio::test]
async fn command_that_cannot_start_is_an_error() {
    let session = Session::with(|w| w, |shell| shell.program("/no/such/shell"));
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
    let end = "\n[further output is not kept: the output file has reached the limit of 64 MiB]\n";
    let expected = 64 * 1024 * 1024 + end.len() as u64;
    assert_eq!(file.metadata().unwrap().len(), expected);
    // Peak memory of the whole test process, which must be far less than the size of the output.
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
    assert!(part.starts_with("xxx"), "the model cannot read the file");
}

#[tokio::test]
async fn timeout_stops_the_whole_tree_and_keeps_the_output() {
    let session = Session::new();
    let command = "echo before; trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > pid; sleep 600' & sleep 600 & wait";
    let started = Instant::now();
    let answer = session
        .call("shell", json!({"command": command, "timeout_s": 0.5}))
        .await;
    refused(answer.clone(), "before\n");
    refused(
        answer,
        "[the command exceeded its limit of 0.5 s: it and everything it started were stopped]",
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let pid = std::fs::read_to_string(session.path("pid")).unwrap();
    assert!(!is_alive(&pid));
    assert!(session.host.works().is_empty());
    // The scope of the call stays open: only the command was stopped.
    assert_eq!(
        session
            .call("shell", json!({"command": "echo next"}))
            .await
            .as_deref(),
        Ok("next\n")
    );
}

#[tokio::test]
async fn unreached_timeout_changes_nothing() {
    let session = Session::new();
    let answer = session
        .call("shell", json!({"command": "echo x", "timeout_s": 60}))
        .await;
    assert_eq!(answer.as_deref(), Ok("x\n"));
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}

#[tokio::test]
async fn child_that_holds_the_output_is_named_without_delay() {
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
async fn rest_of_a_pipeline_is_no_background_work() {
    let session = Session::new();
    for _ in 0..20 {
        let answer = session
            .call("shell", json!({"command": "(exec sleep 0.01) & echo x"}))
            .await;
        assert_eq!(answer.as_deref(), Ok("x\n"));
    }
    // On a busy machine a process can live longer than the wait of the tool.
    let works = session.host.works().len();
    assert!(works < 5, "{works} of 20 became background work");
}

#[tokio::test]
async fn later_output_of_a_leftover_child_is_in_its_file() {
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

/// Starts a call with a link like the agent loop: in a separate scope below the turn.
fn promotable(
    session: &Session,
    command: &str,
) -> (Scope, CallLink, WorkHandle<Result<ToolOutput, ToolError>>) {
    let tool = Arc::clone(session.tools.find("shell").unwrap().tool());
    let scope = session.turn.child("call", ScopeOptions::default()).unwrap();
    let link = CallLink::new("call_1".into(), Arc::new(Deaf));
    let mut invocation = Session::invocation("shell", json!({"command": command}), &scope);
    invocation.link = link.clone();
    let call = async move { tool.call(invocation).await };
    let call = scope.spawn(WorkSpec::new(ItemKind::ToolCall, "shell"), |_| call);
    (scope, link, call.unwrap())
}

struct Deaf;

impl CallObserver for Deaf {
    fn output(&self, _call_id: &CallId, _output: &[u8]) {}

    fn progress(&self, _call_id: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}
}

fn stop_turn(session: &Session) -> allstop_scope::Stop {
    session
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)))
}

#[tokio::test(flavor = "multi_thread")]
async fn promoted_command_outlives_its_turn_with_all_of_its_output() {
    let session = Session::new();
    let command = "for i in 1 2 3; do echo $i; done; touch begun; \
        while [ ! -e go ]; do sleep 0.01; done; echo 4; exit 5";
    let (_scope, link, call) = promotable(&session, command);
    wait_until("it runs", || session.path("begun").exists()).await;
    // The command may run before its call waits for a promotion.
    wait_until("it is promoted", || link.promote() == Ok(())).await;
    assert_eq!(link.promote(), Ok(()), "a second request has no effect");
    let answer = call.await.unwrap().unwrap();
    assert!(
        answer
            .content
            .starts_with("bg_1 runs in the background; its output goes to "),
        "{}",
        answer.content
    );
    let work = session.host.works().remove(0);
    let receipt = stop_turn(&session).await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(receipt.items().is_empty(), "{receipt:?}");
    assert!(work.is_running());
    session.put("go", "");
    let end = work.ended().await;
    assert_eq!(
        (end.state.as_str(), end.exit_code, end.failed),
        ("finished", Some(5), true)
    );
    assert_eq!(work.end(), Some(end));
    let slice = work.output_from(0, 1000);
    assert_eq!(
        (slice.text.as_str(), slice.next_offset),
        ("1\n2\n3\n4\n", 8)
    );
    assert_eq!(work.output_from(4, 1000).text, "3\n4\n");
    assert_eq!(session.host.works().len(), 1);
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_of_promotion_and_exit_has_one_complete_result() {
    let mut promoted = 0;
    for round in 0..30_u32 {
        let session = Session::new();
        let (_scope, link, call) = promotable(&session, "echo a; sleep 0.02; echo b");
        tokio::time::sleep(Duration::from_millis(10) + Duration::from_micros(700) * round).await;
        let _asked = link.promote();
        let answer = call.await.unwrap().unwrap().content;
        let works = session.host.works();
        match works.first() {
            None => assert_eq!(&*answer, "a\nb\n", "round {round}"),
            Some(work) => {
                promoted += 1;
                assert!(
                    answer.starts_with("bg_1 runs in the background"),
                    "round {round}: {answer}"
                );
                assert_eq!(work.ended().await.exit_code, Some(0), "round {round}");
                assert_eq!(work.output(), "a\nb\n", "round {round}");
            }
        }
        wait_until("the scope is quiet", || session.root.is_quiet()).await;
    }
    assert!((1..30).contains(&promoted), "{promoted} of 30: no race");
}

#[tokio::test(flavor = "multi_thread")]
async fn race_of_promotion_and_stop_gives_the_command_one_owner() {
    for round in 0..30_u32 {
        let session = Session::new();
        let command = "echo $$ > pid; touch begun; exec sleep 600";
        let (_scope, link, call) = promotable(&session, command);
        wait_until("it runs", || session.path("begun").exists()).await;
        let stop = if round % 2 == 0 {
            let _asked = link.promote();
            std::thread::yield_now();
            stop_turn(&session)
        } else {
            let stop = stop_turn(&session);
            let _asked = link.promote();
            stop
        };
        let receipt = stop.await;
        assert!(receipt.quiet(), "round {round}: {receipt:?}");
        drop(call.await);
        let pid = std::fs::read_to_string(session.path("pid")).unwrap();
        let works = session.host.works();
        assert_eq!(
            is_alive(&pid),
            !works.is_empty(),
            "round {round}: {receipt:?}"
        );
        assert_eq!(session.root.running().len(), works.len(), "round {round}");
        if let Some(work) = works.first() {
            let receipt = work.stop(Cause::new(CauseKind::User)).await;
            assert!(receipt.quiet(), "round {round}: {receipt:?}");
            assert_eq!(
                work.end().unwrap().state.as_str(),
                "stopped",
                "round {round}"
            );
        }
        assert!(!is_alive(&pid), "round {round}");
    }
}

#[tokio::test]
async fn refused_promotion_leaves_the_call_unchanged() {
    let session = Session::new();
    let order = StopRequest::new(Extent::Session, Cause::new(CauseKind::User));
    drop(session.host.scope().stop(order).await);
    let command = "echo a; touch begun; while [ ! -e go ]; do sleep 0.01; done; echo b";
    let (_scope, link, call) = promotable(&session, command);
    wait_until("it runs", || session.path("begun").exists()).await;
    assert_eq!(link.promote(), Ok(()));
    session.put("go", "");
    assert_eq!(&*call.await.unwrap().unwrap().content, "a\nb\n");
    assert!(session.host.works().is_empty());
}
