//! Known bugs of other agent loops: invalid histories, invented arguments, lost or misreported cancels, abandoned
//! tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allstop_agent::{AgentEvent, Deadlines, Settings};
use allstop_core::turn::{LoopLimits, StopPolicy};
use allstop_core::{CauseKind, StopReason};
use allstop_model::{Pause, Reply};
use allstop_session::{SessionEventKind, StopTarget};
use allstop_testkit::ToolFn;
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{AT_ONCE, LIMIT, OnDisk, Parts, event, in_order, user};

/// "Cannot interrupt a wedged model call: cancel at 0.1 s returned at 2.0 s."
#[tokio::test]
async fn hanging_model_call_is_interrupted_at_once() {
    for stalled in [
        Reply::text("never").stalling_at_connect(Pause::Forever),
        Reply::text("some").pause(Pause::Forever),
    ] {
        let model = in_order(vec![stalled, Reply::text("fine")]);
        let disk = OnDisk::new(Parts::of(Arc::clone(&model) as _)).await;
        let sent = disk.session.send("go").unwrap();
        crate::support::until(|| (!model.requests().is_empty()).then_some(())).await;
        let began = Instant::now();
        let receipt = disk.session.stop(&StopTarget::Turn, user()).receipt().await;
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        assert!(receipt.quiet() && receipt.cancel_observed());
        assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
        let next = disk.session.send("again").unwrap();
        assert_eq!(&*next.outcome().await.output, "fine");
        disk.close().await;
    }
}

/// "Cancel in the middle of a batch of tool calls leaves calls without results in the history."
#[tokio::test]
async fn cancel_within_a_batch_leaves_a_valid_history() {
    let (tx, mut started) = mpsc::unbounded_channel();
    let slow = ToolFn::new("slow", move |call| {
        tx.send(()).unwrap();
        async move {
            call.scope.stopped_at("waiting").await;
            String::new()
        }
    });
    let quick = ToolFn::new("quick", |_| async { "q".to_owned() });
    let batch = Reply::text("")
        .call("quick", json!({}))
        .call("slow", json!({"n": 1}))
        .call("slow", json!({"n": 2}));
    let model = in_order(vec![batch, Reply::text("fine")]);
    let mut parts = Parts::of(Arc::clone(&model) as _);
    parts.tools = vec![Arc::new(slow), Arc::new(quick)];
    parts.settings.stop_policy = StopPolicy::Keep;
    let disk = OnDisk::new(parts).await;
    let sent = disk.session.send("go").unwrap();
    started.recv().await.unwrap();
    started.recv().await.unwrap();
    let receipt = disk.session.stop(&StopTarget::Turn, user()).receipt().await;
    assert!(receipt.quiet());
    sent.outcome().await;
    let state = disk.state().await;
    assert!(
        state.conversation().messages.len() > 4,
        "the step is kept, each call with its result"
    );
    let next = disk.session.send("again").unwrap();
    assert_eq!(&*next.outcome().await.output, "fine");
    for request in model.requests() {
        let messages = request.messages.iter().map(AsRef::as_ref);
        allstop_core::message::check_history(messages).expect("every request is valid");
    }
    disk.close().await;
}

/// "Truncated tool arguments run the tool with `{}`."
#[tokio::test]
async fn truncated_arguments_never_run_the_tool() {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    let delete = ToolFn::new("delete", move |_| {
        seen.store(true, Ordering::SeqCst);
        async { String::new() }
    });
    let replies = vec![
        Reply::text("").malformed_call("delete", "{\"path\": \"/tm"),
        Reply::text("sorry"),
    ];
    let mut parts = Parts::of(in_order(replies));
    parts.tools = vec![Arc::new(delete)];
    let disk = OnDisk::new(parts).await;
    assert_eq!(
        &*disk.session.send("go").unwrap().outcome().await.output,
        "sorry"
    );
    assert!(!ran.load(Ordering::SeqCst));
    disk.close().await;
}

/// "A cancel that lands during the last model call is lost", "a deadline and a user's cancel are both `cancelled`", "a
/// cancel in the last permitted step reads as `max_turns`".
#[tokio::test]
async fn cancel_and_timeout_in_the_last_step_stay_distinct() {
    let stalled = || vec![Reply::text("the last").pause(Pause::Forever)];
    let mut parts = Parts::of(in_order(stalled()));
    parts.settings.steps_max = Some(1);
    let disk = OnDisk::new(parts).await;
    let mut events = disk.session.subscribe(None);
    let sent = disk.session.send("go").unwrap();
    event(&mut events, |event| {
        matches!(
            event.kind,
            SessionEventKind::Live(AgentEvent::TextDelta { .. })
        )
        .then_some(())
    })
    .await;
    disk.session.stop(&StopTarget::Turn, user()).receipt().await;
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert_eq!(outcome.cause.as_ref().unwrap().kind, CauseKind::User);
    disk.close().await;

    let mut parts = Parts::of(in_order(stalled()));
    parts.settings =
        Settings::default().deadlines(Deadlines::default().turn(Duration::from_millis(50)));
    let disk = OnDisk::new(parts).await;
    let outcome = disk.session.send("go").unwrap().outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Timeout);
    assert_eq!(outcome.cause.as_ref().unwrap().kind, CauseKind::Deadline);
    disk.close().await;
}

/// "A tool's timeout abandons its thread, and a panic there kills the process."
#[tokio::test]
async fn tool_panic_or_timeout_fails_only_its_call() {
    let panics = ToolFn::new("panics", |_| async { panic!("on purpose") });
    let hangs = ToolFn::new("hangs", |_| std::future::pending());
    let replies = vec![
        Reply::text("")
            .call("panics", json!({}))
            .call("hangs", json!({})),
        Reply::text("both failed"),
    ];
    let mut parts = Parts::of(in_order(replies));
    parts.tools = vec![Arc::new(panics), Arc::new(hangs)];
    parts.settings.deadlines.tool = Some(Duration::from_millis(50));
    let disk = OnDisk::new(parts).await;
    let began = Instant::now();
    let outcome = disk.session.send("go").unwrap().outcome().await;
    assert!(began.elapsed() < LIMIT);
    assert_eq!(&*outcome.output, "both failed");
    assert!(disk.root.is_quiet(), "nothing was abandoned");
    disk.close().await;
}

/// "Loop-detector and tracer state is shared between users": here two sessions each repeat a call up to the limit.
#[tokio::test]
async fn loop_detection_is_separate_for_each_session() {
    let calls = Arc::new(AtomicUsize::new(0));
    let settings = Settings::default().loop_limits(LoopLimits::default().repeats_max(3));
    for _ in 0..2 {
        let counted = Arc::clone(&calls);
        let look = ToolFn::new("look", move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { "nothing new".to_owned() }
        });
        let looks = || Reply::text("").call("look", json!({}));
        let replies = vec![looks(), looks(), Reply::text("done")];
        let mut parts = Parts::of(in_order(replies));
        parts.settings = settings.clone();
        parts.tools = vec![Arc::new(look)];
        let disk = OnDisk::new(parts).await;
        assert_eq!(
            &*disk.session.send("go").unwrap().outcome().await.output,
            "done"
        );
        disk.close().await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}
