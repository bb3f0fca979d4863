//! Stops at all points of a tool call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Effect, Extent, Receipt};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec};
use allstop_tools::{ToolError, ToolOutput};
use serde_json::{Value, json};

use crate::support::{Session, is_alive, wait_until};

/// Starts a call like the agent loop, so that the call is one item of the receipt.
fn start(
    session: &Session,
    tool: &str,
    arguments: Value,
) -> (Scope, WorkHandle<Result<ToolOutput, ToolError>>) {
    let tool_of_name = Arc::clone(session.tools.find(tool).unwrap().tool());
    let unit = WorkSpec::new(ItemKind::ToolCall, tool)
        .id("call_1")
        .effect(Effect::Irreversible);
    let scope = session
        .turn
        .child("call_1", ScopeOptions::default().unit(unit))
        .unwrap();
    let invocation = Session::invocation(tool, arguments, &scope);
    let call = async move { tool_of_name.call(invocation).await };
    let handle = scope
        .spawn(WorkSpec::new(ItemKind::ToolCall, tool), |_| call)
        .unwrap();
    (scope, handle)
}

async fn stop(session: &Session) -> Arc<Receipt> {
    session
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)))
        .await
}

/// Regression: the call of a command that ended by itself just before the signal of a stop reported a stop, and the
/// receipt listed the call as finished.
#[tokio::test(flavor = "multi_thread")]
async fn command_that_ends_before_its_signal_has_a_result() {
    let session = Session::new();
    let command = "touch begun; while [ ! -e go ]; do sleep 0.01; done; echo done";
    let (_scope, call) = start(&session, "shell", json!({"command": command}));
    wait_until("it runs", || session.path("begun").exists()).await;
    let request = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User));
    // The stop covers the call, and has sent no signal yet.
    let targets = std::slice::from_ref(&session.turn);
    let accepted = session.turn.accept_stop_of(targets, request);
    session.put("go", "");
    let answer = call.await.unwrap().unwrap();
    assert_eq!(&*answer.content, "done\n");
    let receipt = accepted.begin().receipt().await;
    let states: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| item.state.as_str())
        .collect();
    assert_eq!(states, ["finished"], "{receipt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_tree_that_ignores_sigterm_is_gone_at_the_receipt() {
    let session = Session::new();
    let command = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > far; sleep 600; true' & \
        sh -c 'trap \"\" TERM; echo $$ > near; sleep 600; true' & wait";
    let (_scope, call) = start(&session, "shell", json!({"command": command}));
    let read = |name: &str| std::fs::read_to_string(session.path(name)).unwrap_or_default();
    wait_until("both run", || {
        read("far").ends_with('\n') && read("near").ends_with('\n')
    })
    .await;
    let started = Instant::now();
    let receipt = stop(&session).await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert!(!is_alive(&read("far")) && !is_alive(&read("near")));
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    assert_eq!(receipt.items()[0].state.as_str(), "stopped");
    assert!(receipt.items()[0].containment.is_some());
    assert!(call.await.map_or(true, |answer| answer.is_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_covers_leftover_processes_of_its_call() {
    // In each round the stop comes a little later: before, during and after the start, and while the shell exits before
    // its child.
    for round in 0..20_u32 {
        let session = Session::new();
        let command = "echo $$ > pid; (trap '' TERM; sleep 600; true) & exit 0";
        let (_scope, call) = start(&session, "shell", json!({"command": command}));
        tokio::time::sleep(Duration::from_millis(5) * round).await;
        let receipt = session
            .turn
            .stop(
                StopRequest::new(Extent::Turn, Cause::new(CauseKind::User))
                    .grace(Duration::from_millis(20)),
            )
            .await;
        assert!(receipt.quiet(), "round {round}: {receipt:?}");
        drop(call.await);
        // Every process was either stopped or handed over to the session.
        let running = session.root.running();
        let named = allstop_tools::BackgroundHost::works(&*session.host).len();
        assert_eq!(running.len(), named, "round {round}: {running:?}");
        let receipt = session
            .root
            .stop(
                StopRequest::new(Extent::Session, Cause::new(CauseKind::User))
                    .grace(Duration::from_millis(20)),
            )
            .await;
        assert!(receipt.quiet(), "round {round}: {receipt:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_write_leaves_the_old_file_or_the_new() {
    for round in 0..20_u32 {
        let session = Session::new();
        let old = "old\n".repeat(1_000_000);
        let new = "new\n".repeat(4_000_000);
        session.put("a.txt", &old);
        let (_scope, call) = start(&session, "write", json!({"path": "a.txt", "content": new}));
        tokio::time::sleep(Duration::from_millis(2) * round).await;
        let receipt = stop(&session).await;
        assert!(receipt.quiet(), "round {round}: {receipt:?}");
        drop(call.await);
        let is = std::fs::read_to_string(session.path("a.txt")).unwrap();
        assert!(is == old || is == new, "round {round}: {} bytes", is.len());
        assert_eq!(
            session.names(),
            ["a.txt"],
            "round {round}: a temporary file was left"
        );
    }
}

#[tokio::test]
async fn nothing_starts_after_a_stop() {
    let session = Session::new();
    let call = session.turn.child("call", ScopeOptions::default()).unwrap();
    assert!(stop(&session).await.quiet());
    for (tool, arguments) in [
        ("write", json!({"path": "a.txt", "content": "x"})),
        ("shell", json!({"command": "touch b.txt"})),
        (
            "shell",
            json!({"command": "touch c.txt", "background": true}),
        ),
    ] {
        let invocation = Session::invocation(tool, arguments, &call);
        let answer = session
            .tools
            .find(tool)
            .unwrap()
            .tool()
            .call(invocation)
            .await;
        assert!(
            answer
                .unwrap_err()
                .message
                .contains("not started: stopped, user"),
            "{tool}"
        );
    }
    assert!(session.names().is_empty());
}

/// Tests that measure the duration of a stop.
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn flood_of_output_does_not_delay_a_stop() {
        let session = Session::new();
        let (_scope, _call) = start(&session, "shell", json!({"command": "yes"}));
        let spill = session.temporary.path().join("spill");
        wait_until("it floods", || {
            std::fs::read_dir(&spill).unwrap().next().is_some()
        })
        .await;
        let started = Instant::now();
        let receipt = stop(&session).await;
        assert!(receipt.quiet(), "{receipt:?}");
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stop_ends_a_search_between_two_reads() {
        let session = Session::new();
        // Gigabytes of lines without a match: a full search would take much longer than the time limit of the stop.
        let path = session.put("lines.txt", "abcdefgh\n".repeat(1_000_000));
        for number in 0..400 {
            std::fs::hard_link(&path, session.path(&format!("link{number}.txt"))).unwrap();
        }
        let (_scope, call) = start(&session, "grep", json!({"pattern": "zzz"}));
        wait_until("it searches", || session.root.threads() == 1).await;
        let started = Instant::now();
        let receipt = stop(&session).await;
        assert!(receipt.quiet(), "{receipt:?}");
        assert!(
            started.elapsed() < Duration::from_millis(500),
            "{:?}",
            started.elapsed()
        );
        assert_eq!(receipt.items()[0].state.as_str(), "stopped", "{receipt:?}");
        assert_eq!(session.root.threads(), 0);
        drop(call.await);
    }
}
