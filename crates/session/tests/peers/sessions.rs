//! Known bugs of other session servers: aborts that report success without effect, and waits that resolve too early or
//! never. Single calls cannot be cancelled. An unrelated stop kills a shell, or a shell survives its own stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::AgentEvent;
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, NothingToStop};
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, StopReason};
use allstop_model::{Pause, Reply, ScriptedModel};
use allstop_session::{FollowUp, SessionEventKind, StopTarget};
use allstop_testkit::ToolFn;
use serde_json::json;

use crate::support::{
    AT_ONCE, LIMIT, OnDisk, Parts, bytes_of, event, in_order, is_alive, until, user,
};

const SERVER: &str = "echo $$ > server.pid; exec sleep 600";

fn starts_a_server() -> Vec<Reply> {
    let arguments = json!({"command": SERVER, "background": true});
    vec![
        Reply::text("").call("shell", arguments),
        Reply::text("it runs"),
    ]
}

/// "Abort with only a background shell running answers success in 3 ms, the shell lives, no idle event comes."
#[tokio::test]
async fn stop_of_background_work_only_is_a_real_stop() {
    let disk = OnDisk::new(Parts::of(in_order(starts_a_server()))).await;
    disk.session.send("go").unwrap().outcome().await;
    let server = disk.pid_in("server.pid").await;
    let mut events = disk.session.subscribe(None);

    let nothing = disk.session.stop(&StopTarget::Turn, user()).receipt().await;
    assert_eq!(nothing.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(nothing.items().is_empty());
    assert!(is_alive(server), "a stop of the turn does not cover it");

    let began = Instant::now();
    let stopping = disk.session.stop(&StopTarget::TurnAndBackground, user());
    let receipt = stopping.receipt().await;
    assert!(began.elapsed() < AT_ONCE + LIMIT);
    assert!(
        receipt.quiet() && receipt.outcome().is_none(),
        "{receipt:?}"
    );
    let named = receipt
        .items()
        .iter()
        .any(|item| item.kind == ItemKind::Background);
    assert!(named, "{receipt:?}");
    assert!(!is_alive(server), "gone when the receipt says so");
    event(&mut events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    let again = disk.session.stop(&StopTarget::TurnAndBackground, user());
    assert_eq!(
        again.receipt().await.outcome(),
        Some(NothingToStop::AlreadyEnded)
    );
    disk.close().await;
}

/// "The same abort during a turn kills that unrelated shell."
#[tokio::test]
async fn turn_stop_leaves_unrelated_background_work_alone() {
    let mut replies = starts_a_server();
    replies.push(Reply::text("some words").pause(Pause::Forever));
    replies.push(Reply::text("fine"));
    let disk = OnDisk::new(Parts::of(in_order(replies))).await;
    disk.session.send("go").unwrap().outcome().await;
    let server = disk.pid_in("server.pid").await;
    let mut events = disk.session.subscribe(None);
    let sent = disk.session.send("talk").unwrap();
    event(&mut events, |event| {
        matches!(
            event.kind,
            SessionEventKind::Live(AgentEvent::TextDelta { .. })
        )
        .then_some(())
    })
    .await;
    let began = Instant::now();
    let receipt = disk.session.stop(&StopTarget::Turn, user()).receipt().await;
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert!(receipt.quiet() && receipt.cancel_observed());
    let outside: Vec<_> = receipt
        .items()
        .iter()
        .filter(|item| {
            matches!(
                item.state,
                ItemState::StillRunning {
                    why: NotStoppedReason::OutsideExtent
                }
            )
        })
        .collect();
    assert_eq!(outside.len(), 1, "listed as a bystander: {receipt:?}");
    assert!(is_alive(server), "still alive");
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
    let next = disk.session.send("next").unwrap();
    assert_eq!(&*next.outcome().await.output, "fine");
    assert!(is_alive(server));
    disk.close().await;
    assert!(!is_alive(server), "the server does not survive the session");
}

/// "An aborted send-and-wait resolves normally with an empty message."
#[tokio::test]
async fn wait_for_a_stopped_message_reports_the_stop() {
    let replies = vec![Reply::text("some").pause(Pause::Forever)];
    let disk = OnDisk::new(Parts::of(in_order(replies))).await;
    let mut events = disk.session.subscribe(None);
    let (session, watched) = (disk.session.clone(), disk.session.clone());
    let stops = async {
        event(&mut events, |event| {
            matches!(
                event.kind,
                SessionEventKind::Live(AgentEvent::TextDelta { .. })
            )
            .then_some(())
        })
        .await;
        watched.stop(&StopTarget::Turn, user()).receipt().await
    };
    let (waited, receipt) = tokio::join!(session.send_and_wait("go", LIMIT), stops);
    let waited = waited.unwrap();
    let outcome = waited.outcome.expect("its own outcome");
    assert!(!waited.timed_out);
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    let own = outcome.receipt.as_ref().expect("with its receipt");
    assert_eq!(own.stop_id(), receipt.stop_id());
    disk.close().await;
}

/// Three cases of a wait: without background work, with a shell that ends, and with a shell that never ends. In the
/// last case the limit passes, and the result lists the running work. The tests of sub-agents cover waits for
/// background agents.
#[tokio::test]
async fn wait_ends_when_idle_or_lists_running_work_at_its_limit() {
    let gate = "until [ -e gate ]; do sleep 0.01; done; echo done";
    let replies = vec![
        Reply::text("no background"),
        Reply::text("").call("shell", json!({"command": gate, "background": true})),
        Reply::text("it waits at the gate"),
        Reply::text("").call(
            "shell",
            json!({"command": "exec sleep 600", "background": true}),
        ),
        Reply::text("for ever"),
    ];
    let disk = OnDisk::new(Parts::of(in_order(replies))).await;

    let waited = disk.session.send_and_wait("one", LIMIT).await.unwrap();
    assert!(!waited.timed_out && waited.running.is_empty());
    assert_eq!(&*waited.outcome.unwrap().output, "no background");

    let mut wait = Box::pin(disk.session.send_and_wait("two", LIMIT));
    let mut events = disk.session.subscribe(None);
    let idle = event(&mut events, |event| match &event.kind {
        SessionEventKind::AssistantIdle { running, .. } => Some(running.len()),
        _ => None,
    });
    tokio::select! {
        biased;
        _ = &mut wait => panic!("it must wait for the shell"),
        running = idle => assert_eq!(running, 1, "the turn has ended, the shell runs"),
    }
    std::fs::write(disk.path("gate"), "").unwrap();
    let waited = wait.await.unwrap();
    assert!(!waited.timed_out && waited.running.is_empty());
    assert_eq!(&*waited.outcome.unwrap().output, "it waits at the gate");

    let short = Duration::from_millis(300);
    let waited = disk.session.send_and_wait("three", short).await.unwrap();
    let sent = waited.sent.outcome().await;
    assert!(waited.timed_out, "the shell never ends");
    assert_eq!(&*sent.output, "for ever", "the limit stopped nothing");
    let running = until(|| {
        let works = disk.session.background();
        works.into_iter().find(|work| work.is_running())
    })
    .await;
    assert!(running.is_running());
    disk.close().await;
}

/// "A timeout of send-and-wait leaves the turn running and the next message queues behind it": here the result reports
/// the running turn, and the next message follows its follow-up policy.
#[tokio::test]
async fn session_takes_the_next_message_after_a_wait_timed_out() {
    // The prompt selects the reply, because it is random how far the first turn gets within its time limit.
    let script = "{turns: [{when: two, replies: [{text: two}]}, {replies: [{text: some, stall: mid_stream}]}]}";
    let model = ScriptedModel::parse("peers", script).expect("a script");
    let mut parts = Parts::of(Arc::new(model));
    parts.options.follow_up = FollowUp::Interrupt;
    let disk = OnDisk::new(parts).await;
    let short = Duration::from_millis(50);
    let waited = disk.session.send_and_wait("one", short).await.unwrap();
    assert!(
        waited.timed_out && waited.outcome.is_none(),
        "timed out, without an outcome"
    );
    assert!(disk.session.is_busy());
    let next = disk.session.send_and_wait("two", LIMIT).await.unwrap();
    assert_eq!(&*next.outcome.unwrap().output, "two");
    let first = waited.sent.outcome().await;
    assert_eq!(first.stop_reason, StopReason::Cancelled);
    disk.close().await;
}

/// "No way to cancel one call exists in protocol or SDKs", and "an aborted external call has no completion record".
#[tokio::test]
async fn one_call_is_cancelled_and_its_siblings_continue() {
    let (tx, mut started) = tokio::sync::mpsc::unbounded_channel();
    let slow = ToolFn::new("slow", move |call| {
        tx.send(call.call_id.clone()).unwrap();
        async move {
            call.scope.stopped_at("waiting").await;
            "half".to_owned()
        }
    });
    let quick = ToolFn::new("quick", |_| async { "whole".to_owned() });
    let replies = vec![
        Reply::text("")
            .call("slow", json!({}))
            .call("quick", json!({})),
        Reply::text("done"),
    ];
    let model = in_order(replies);
    let mut parts = Parts::of(Arc::clone(&model) as _);
    parts.tools = vec![Arc::new(slow), Arc::new(quick)];
    let disk = OnDisk::new(parts).await;
    let sent = disk.session.send("go").unwrap();
    let call: CallId = started.recv().await.unwrap();
    let began = Instant::now();
    let receipt = disk
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert!(began.elapsed() < AT_ONCE);
    assert!(receipt.quiet() && receipt.cancel_observed() && receipt.outcome().is_none());
    let again = disk
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(again.stop_id(), receipt.stop_id());
    let never = disk
        .session
        .stop(&StopTarget::Call("call_x".into()), user())
        .receipt()
        .await;
    assert_eq!(never.outcome(), Some(NothingToStop::NotFound));
    assert_eq!(&*sent.outcome().await.output, "done", "the turn goes on");
    let asked = model.requests();
    let told: Vec<String> = asked[1]
        .messages
        .iter()
        .map(|message| format!("{message:?}"))
        .collect();
    assert!(
        told.iter()
            .any(|said| said.contains("the call was stopped")),
        "{told:?}"
    );
    assert!(told.iter().any(|said| said.contains("whole")), "{told:?}");
    let finished = disk.records_of(&call).await;
    assert_eq!(
        finished,
        [CallOutcome::Stopped],
        "exactly one completion record"
    );
    disk.close().await;
}

/// "A sync shell's abort answered in 11 ms, its process group was gone 1.5 s later": here the processes are gone when
/// the answer arrives, and they write nothing afterwards.
#[tokio::test]
async fn stopped_shell_has_no_processes_left_at_its_receipt() {
    let command = "echo $$ > shell.pid; while :; do echo x >> written; sleep 0.01; done";
    let replies = vec![Reply::text("").call("shell", json!({"command": command}))];
    let disk = OnDisk::new(Parts::of(in_order(replies))).await;
    let sent = disk.session.send("go").unwrap();
    let shell = disk.pid_in("shell.pid").await;
    until(|| (bytes_of(&disk.path("written")) > 0).then_some(())).await;
    let receipt = disk.session.stop(&StopTarget::Turn, user()).receipt().await;
    let written = bytes_of(&disk.path("written"));
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(!is_alive(shell));
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
    let store = bytes_of(&disk.path("store.db"));
    assert!(
        store > 0 && store < 1_000_000,
        "a stopped turn leaves {store} bytes"
    );
    // Several times as long as the shell needs for one more line.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        bytes_of(&disk.path("written")),
        written,
        "no process writes any more"
    );
    assert!(disk.state().await.conversation().messages.is_empty());
    disk.close().await;
}
