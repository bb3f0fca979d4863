//! A stop at any point: the conversation, the receipt (the result of the stop), and the next message.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{
    Deadlines, EventSink, Hook, HookCx, HookEvent, HookVerdict, Run, RunHistory, RunRequest,
    Settings,
};
use allstop_core::receipt::{ConversationEffect, ItemKind, NothingToStop};
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, Effect, Extent, Message, StopReason};
use allstop_model::{Pause, Reply};
use allstop_scope::{StopRequest, WorkSpec};
use allstop_testkit::ToolFn;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use crate::{LONG, agent, check_requests, ended, history, model, root, run, settings, tools};

pub(super) fn user() -> Cause {
    Cause::new(CauseKind::User).detail("ctrl-c")
}

/// Creates a tool that reports its start on the channel and then runs the closure.
fn announcing(
    name: &str,
    running: &tokio::sync::mpsc::UnboundedSender<()>,
    body: fn(allstop_tools::ToolInvocation) -> futures::future::BoxFuture<'static, String>,
) -> ToolFn {
    let running = running.clone();
    ToolFn::new(name, move |call| {
        running.send(()).expect("a receiver");
        body(call)
    })
}

pub(super) fn hears(
    call: allstop_tools::ToolInvocation,
) -> futures::future::BoxFuture<'static, String> {
    Box::pin(async move {
        call.scope.stopped_at("idle").await;
        "stopped early".to_owned()
    })
}

pub(super) fn deaf(
    _: allstop_tools::ToolInvocation,
) -> futures::future::BoxFuture<'static, String> {
    Box::pin(std::future::pending())
}

#[tokio::test(start_paused = true)]
async fn stop_in_mid_stream_leaves_nothing_and_the_next_message_works() {
    let model = model(vec![
        Reply::text("some words")
            .pause(Pause::Forever)
            .and_text("more"),
    ]);
    let scope = root();
    let (sink, mut events) = EventSink::channel();
    let request = RunRequest::new(history().await, "go");
    let run = agent(&model).build().start(&scope, request, sink);
    while !matches!(
        events.recv().await.unwrap(),
        allstop_agent::AgentEvent::TextDelta { .. }
    ) {}
    let stop = run.stop(user());
    let (turn, history) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert!(turn.conversation.messages.is_empty());
    let receipt = turn.receipt.unwrap();
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert_eq!(receipt.stop_id(), stop.receipt().await.stop_id());
    assert_eq!(receipt.items()[0].tokens_received_after_stop, Some(0));
    let json = serde_json::to_value(&receipt.items()[0]).unwrap();
    assert_eq!(json["observed_at"], "stream_chunk");
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
    // "some words" has ten bytes. The usage is estimated from these bytes and marked as an estimate.
    assert_eq!((turn.usage.output_tokens, turn.usage.estimated), (3, true));
    assert_eq!(receipt.usage(), turn.usage);

    let next = crate::model(vec![Reply::text("fine")]);
    let (turn, history) = crate::run(agent(&next).build(), &scope, history, "again").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!(history.conversation().messages.len(), 2);
    assert_eq!(history.next_turn().0, 3);
}

/// Starts a run, and returns the run when its two tools are running.
pub(super) async fn in_two_tools(
    settings: Settings,
    bodies: [fn(allstop_tools::ToolInvocation) -> futures::future::BoxFuture<'static, String>; 2],
) -> (Run, Arc<allstop_model::ScriptedModel>, allstop_scope::Scope) {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let model = model(vec![
        Reply::text("first").call("quick", json!({})),
        Reply::text("second")
            .call("one", json!({}))
            .call("two", json!({})),
        Reply::text("never"),
    ]);
    let quick = ToolFn::new("quick", |_| async { "q".to_owned() });
    let [one, two] = bodies;
    let registry = tools(vec![
        quick,
        announcing("one", &tx, one),
        announcing("two", &tx, two),
    ]);
    let agent = agent(&model).tools(registry).settings(settings).build();
    let scope = root();
    let run = agent.start(
        &scope,
        RunRequest::new(history().await, "go"),
        EventSink::none(),
    );
    for _ in 0..2 {
        rx.recv().await.expect("both tools run");
    }
    (run, model, scope)
}

#[tokio::test(start_paused = true)]
async fn stop_names_each_tool_whether_it_listens_or_not() {
    let (run, model, scope) = in_two_tools(settings(), [hears, deaf]).await;
    let began = Instant::now();
    let _stop = run.stop(user());
    let (turn, history) = ended(run.finish().await.unwrap());
    assert!(began.elapsed() <= allstop_scope::GRACE_DEFAULT + allstop_scope::FORCE_MAX);
    let receipt = turn.receipt.unwrap();
    assert!(receipt.quiet(), "{receipt:#?}");
    let states: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| (&*item.name, item.state.as_str()))
        .collect();
    // The tool that did not react to the stop was dropped, and its effect is unknown.
    assert_eq!(states, [("one", "stopped"), ("two", "unknown")]);
    let unknown = match &history {
        RunHistory::Logged(session) => session.state().turns()[0].unknown_calls.clone(),
        RunHistory::Bare { .. } => unreachable!(),
    };
    assert_eq!(unknown.len(), 1);
    assert_eq!(&*unknown[0].name, "two");
    assert!(scope.is_quiet());
    check_requests(&model);
}

/// A tool whose work a stop refuses to start.
#[derive(Debug)]
struct Refused(ToolFn);

impl Tool for Refused {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            self.0.call(call.clone()).await?;
            call.scope.stopped().await;
            Err(ToolError::not_started("not started: stopped"))
        })
    }
}

/// Regression: the receipt claimed that the call had ended by itself, as if it had done its work.
#[tokio::test(start_paused = true)]
async fn call_that_a_stop_refused_to_start_did_not_end_by_itself() {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let model = model(vec![Reply::text("").call("pay", json!({}))]);
    let pay = ToolFn::new("pay", move |_| {
        tx.send(()).expect("a receiver");
        std::future::ready(String::new())
    });
    let mut registry = tools(vec![]);
    registry.register(Arc::new(Refused(pay))).expect("one tool");
    let agent = agent(&model).tools(registry).build();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&root(), request, EventSink::none());
    rx.recv().await.expect("the call");
    let _stop = run.stop(user());
    let (turn, _history) = ended(run.finish().await.unwrap());
    let receipt = turn.receipt.unwrap();
    let [item] = receipt.items() else {
        panic!("{receipt:#?}")
    };
    assert_eq!(item.state.as_str(), "stopped", "{receipt:#?}");
    let json = serde_json::to_value(item).unwrap();
    assert_eq!(json["observed_at"], "before_its_start");
}

/// Regression: the log had the result of a call that the receipt listed as stopped. The call had returned, and other work
/// in its scope had not ended when the stop of the turn came.
#[tokio::test(start_paused = true)]
async fn call_whose_work_the_stop_has_ended_has_no_result() {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let quick = ToolFn::new("quick", move |call| {
        let (tx, opened) = (tx.clone(), Arc::clone(&opened));
        let (begun, begins) = tokio::sync::oneshot::channel();
        let spec = WorkSpec::new(ItemKind::Future, "left");
        let left = call.scope.spawn(spec, |cx| async move {
            begun.send(()).expect("a receiver");
            // The end of the call stops the work that the call has left.
            cx.stopped_at("left").await;
            tx.send(()).expect("a receiver");
            opened.notified().await;
        });
        drop(left.expect("nothing is stopped yet"));
        async move {
            begins.await.expect("it begins");
            "done".to_owned()
        }
    });
    let model = model(vec![Reply::text("").call("quick", json!({}))]);
    let keep = settings().stop_policy(StopPolicy::Keep);
    let agent = agent(&model)
        .tools(tools(vec![quick]))
        .settings(keep)
        .build();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&root(), request, EventSink::none());
    rx.recv().await.expect("the stop of the left work");
    let _stop = run.stop(user());
    gate.notify_one();
    let (turn, _history) = ended(run.finish().await.unwrap());
    let receipt = turn.receipt.unwrap();
    let [item] = receipt.items() else {
        panic!("{receipt:#?}")
    };
    assert_eq!(item.state.as_str(), "stopped", "{receipt:#?}");
    let Message::Tool(result) = &*turn.conversation.messages[2] else {
        panic!()
    };
    assert!(result.is_error, "{result:#?}");
}

fn soon_done(_: allstop_tools::ToolInvocation) -> futures::future::BoxFuture<'static, String> {
    Box::pin(async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        "done before the force".to_owned()
    })
}

#[tokio::test(start_paused = true)]
async fn result_within_the_grace_is_kept() {
    let keep = settings().stop_policy(StopPolicy::Keep);
    let (run, _, _) = in_two_tools(keep, [soon_done, hears]).await;
    let _stop = run.stop(user());
    let (turn, history) = ended(run.finish().await.unwrap());
    assert_eq!(turn.receipt.unwrap().items()[0].state.as_str(), "finished");
    let Message::Tool(result) = &*turn.conversation.messages[4] else {
        panic!()
    };
    assert_eq!(&*result.content, "done before the force");
    let RunHistory::Logged(session) = history else {
        panic!()
    };
    assert!(session.state().turns()[0].unknown_calls.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deadline_is_a_timeout_and_not_a_cancel() {
    for (deadlines, word) in [
        (
            allstop_agent::Deadlines::default().run(Duration::from_secs(1)),
            "run",
        ),
        (
            allstop_agent::Deadlines::default().turn(Duration::from_secs(1)),
            "turn",
        ),
        (
            allstop_agent::Deadlines::default().step(Duration::from_secs(1)),
            "step",
        ),
        (
            allstop_agent::Deadlines::default().inactivity(Duration::from_secs(1)),
            "no activity",
        ),
    ] {
        let model = model(vec![Reply::text("x").pause(Pause::Forever)]);
        let agent = agent(&model)
            .settings(settings().deadlines(deadlines))
            .build();
        let began = Instant::now();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Timeout, "{word}");
        assert!(turn.cause.unwrap().to_string().contains(word), "{word}");
        let receipt = turn.receipt.expect("a timeout carries a receipt");
        assert!(receipt.cancel_observed() && receipt.quiet(), "{word}");
        assert!(began.elapsed() < Duration::from_secs(2), "{word}");
        assert!(turn.usage.total_tokens() > 0, "a timeout keeps its usage");
    }
}

#[tokio::test(start_paused = true)]
async fn passed_deadline_stops_the_first_turn_at_its_start() {
    let deadlines = allstop_agent::Deadlines::default().run(Duration::ZERO);
    let model = model(vec![Reply::text("never")]);
    let agent = agent(&model)
        .settings(settings().deadlines(deadlines))
        .build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Timeout);
    assert!(model.requests().is_empty());
    assert!(turn.receipt.expect("a timeout carries a receipt").quiet());
}

#[tokio::test(start_paused = true)]
async fn run_deadline_is_cumulative_over_turns() {
    let deadlines = allstop_agent::Deadlines::default().run(Duration::from_secs(10));
    let slow = |text: &str| Reply::text(text).pause(Pause::For(Duration::from_secs(6)));
    let model = model(vec![slow("one"), slow("two"), slow("three")]);
    let agent = agent(&model)
        .settings(settings().deadlines(deadlines))
        .build();
    let mut request = RunRequest::new(history().await, "a");
    request.prompts.extend(["b".into(), "c".into()]);
    let began = Instant::now();
    let outcome = agent
        .start(&root(), request, EventSink::none())
        .finish()
        .await
        .unwrap();
    let reasons: Vec<_> = outcome.turns.iter().map(|turn| turn.stop_reason).collect();
    assert_eq!(reasons, [StopReason::Completed, StopReason::Timeout]);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_ends_the_call_and_the_turn_continues() {
    let model = model(vec![
        Reply::text("")
            .call("slow", json!({}))
            .call("fine", json!({})),
        Reply::text("ok"),
    ]);
    let slow = ToolFn::new("slow", deaf)
        .effect(Effect::ReadOnly)
        .timeout(Duration::from_secs(1));
    let fine = ToolFn::new("fine", |_| async { "fine".to_owned() });
    let agent = agent(&model).tools(tools(vec![slow, fine])).build();
    let scope = root();
    let (turn, _) = run(agent, &scope, history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let Message::Tool(result) = &*turn.conversation.messages[2] else {
        panic!()
    };
    assert!(
        result.is_error && result.content.contains("tool timeout of 1s"),
        "{result:?}"
    );
    assert!(scope.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn stop_during_a_retry_delay_is_quiet_at_once() {
    let error = allstop_model::ModelError::new(
        allstop_model::ModelErrorKind::Unavailable,
        "overloaded".to_owned(),
    );
    let model = model(vec![Reply::error(error)]);
    let retry = allstop_model::RetryPolicy::default()
        .first_delay(LONG)
        .delay_max(LONG);
    let agent = agent(&model).settings(settings().retry(retry)).build();
    let (sink, mut events) = EventSink::channel();
    let run = agent.start(&root(), RunRequest::new(history().await, "go"), sink);
    while !matches!(
        events.recv().await.unwrap(),
        allstop_agent::AgentEvent::RetryScheduled { .. }
    ) {}
    let began = Instant::now();
    let _stop = run.stop(user());
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(turn.receipt.unwrap().quiet());
}

#[tokio::test(start_paused = true)]
async fn dropped_run_stops_with_cause_disconnect_and_logs_a_receipt() {
    let log = Arc::new(allstop_log::MemoryLog::new());
    let at = allstop_core::Timestamp::from_unix_ms(0);
    let session =
        allstop_log::SessionWriter::create(Arc::clone(&log) as _, "s1".into(), at, "/", None)
            .await
            .unwrap();
    let model = model(vec![Reply::text("x").pause(Pause::Forever)]);
    let (sink, mut events) = EventSink::channel();
    let request = RunRequest::new(RunHistory::Logged(Box::new(session)), "go");
    let run = agent(&model).build().start(&root(), request, sink);
    while !matches!(
        events.recv().await.unwrap(),
        allstop_agent::AgentEvent::TextDelta { .. }
    ) {}
    drop(run);
    // The engine holds the session lock until it has written the ending.
    while !matches!(
        events.recv().await.unwrap(),
        allstop_agent::AgentEvent::TurnEnded { .. }
    ) {}
    let (state, _) = allstop_log::read_session(&*log, &"s1".into())
        .await
        .unwrap();
    let ending = state.turns()[0].ending.clone().unwrap();
    assert_eq!(ending.cause.unwrap().kind, CauseKind::Disconnect);
    assert!(ending.receipt.unwrap().quiet());
}

#[tokio::test(start_paused = true)]
async fn turn_has_its_own_account_of_a_wider_stop() {
    let (run, _, scope) = in_two_tools(settings(), [hears, hears]).await;
    let wide = scope.stop(StopRequest::new(Extent::Process, user()));
    let (turn, _) = ended(run.finish().await.unwrap());
    let receipt = turn.receipt.unwrap();
    assert_eq!(receipt.stop_id(), &wide.request().stop_id);
    assert_eq!(&*receipt.request().target, "session/s1/turn/1");
    assert!(wide.receipt().await.quiet());
}

#[tokio::test(start_paused = true)]
async fn stop_after_any_end_reports_that_the_turn_had_ended() {
    let deadlines = Deadlines::default().step(LONG);
    let of_steps = settings().deadlines(deadlines);
    let refused = settings().turns_max(0);
    for (settings, reason) in [
        (settings(), StopReason::Completed),
        (of_steps, StopReason::Completed),
        (refused, StopReason::MaxTurnsReached),
    ] {
        let calls = Reply::text("")
            .call("t", json!({}))
            .call("unknown", json!({}));
        let model = model(vec![calls, Reply::text("done")]);
        let tool = ToolFn::new("t", |_| async { "x".to_owned() });
        let agent = agent(&model).tools(tools(vec![tool])).settings(settings);
        let request = RunRequest::new(history().await, "go");
        let mut run = agent.build().start(&root(), request, EventSink::none());
        let (turn, _) = ended(run.wait().await.unwrap());
        assert_eq!(turn.stop_reason, reason);
        let late = run.stop(user()).receipt().await;
        assert_eq!(
            late.outcome(),
            Some(NothingToStop::AlreadyEnded),
            "{reason:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn late_stop_changes_nothing_and_refuses_the_next_turn() {
    let model = model(vec![Reply::text("x")]);
    let scope = root();
    let mut run = agent(&model).build().start(
        &scope,
        RunRequest::new(history().await, "go"),
        EventSink::none(),
    );
    let (turn, history) = ended(run.wait().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let late = run.stop(user()).receipt().await;
    assert_eq!(late.outcome(), Some(NothingToStop::AlreadyEnded));

    let _wide = scope.stop(StopRequest::new(Extent::Session, user()));
    let (turn, history) = crate::run(agent(&model).build(), &scope, history, "next").await;
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert_eq!(
        history.conversation().messages.len(),
        2,
        "the first turn stands"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_tool_is_named_and_the_turn_ends_in_time() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let wedged = ToolFn::new("wedged", move |_| {
        let (held, tx) = (Arc::clone(&held), tx.clone());
        async move {
            tx.send(()).unwrap();
            let _gone = held.lock().unwrap().recv();
            "late".to_owned()
        }
    });
    let model = model(vec![
        Reply::text("").call("wedged", json!({})),
        Reply::text("never"),
    ]);
    let agent = agent(&model).tools(tools(vec![wedged])).build();
    let mut options = allstop_scope::RootOptions::single_runtime();
    options.grace = Duration::from_millis(50);
    let scope = allstop_scope::Scope::root("test", options);
    let run = agent.start(
        &scope,
        RunRequest::new(history().await, "go"),
        EventSink::none(),
    );
    rx.recv().await.unwrap();
    let _stop = run.stop(user());
    let (turn, history) = ended(run.finish().await.unwrap());
    let receipt = turn.receipt.unwrap();
    assert!(!receipt.quiet() && !receipt.cancel_observed());
    assert_eq!(receipt.items()[0].state.as_str(), "still_running");
    let before = history.conversation();
    drop(release);
    // The late answer of the tool is discarded: the conversation is unchanged.
    assert_eq!(history.conversation(), before);
}

/// One call ends. The other call ends while the hook of the first call runs, and then the turn is stopped.
#[tokio::test(start_paused = true)]
async fn result_of_a_call_that_ended_during_a_hook_is_kept() {
    #[derive(Debug)]
    struct Slow(Arc<str>);
    impl Hook for Slow {
        fn name(&self) -> &Arc<str> {
            &self.0
        }
        fn wants(&self, event: &HookEvent) -> bool {
            event.name() == "tool_end"
        }
        fn on(&self, _: &HookCx, _: HookEvent) -> BoxFuture<'static, HookVerdict> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_mins(1)).await;
                HookVerdict::Continue
            })
        }
    }
    let quick = ToolFn::new("quick", |_| async { "QUICK".to_owned() });
    let pays = ToolFn::new("pays", |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "PAID".to_owned()
    });
    let calls = Reply::text("")
        .call("quick", json!({}))
        .call("pays", json!({}));
    let agent = agent(&model(vec![calls]))
        .tools(tools(vec![quick, pays]))
        .settings(settings().stop_policy(StopPolicy::Keep))
        .hook(Arc::new(Slow("slow".into())));
    let request = RunRequest::new(history().await, "go");
    let run = agent.build().start(&root(), request, EventSink::none());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let _receipt = run.stop(user());
    let (turn, _) = ended(run.finish().await.unwrap());
    let told = format!("{:?}", turn.conversation.messages);
    assert!(told.contains("PAID"), "{told}");
    assert!(!told.contains("may have completed"), "{told}");
}
