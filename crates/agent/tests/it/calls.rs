//! The end of a call in the log and in the events: exit code, timeout and remaining work.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{AgentEvent, EventSink, RunRequest, TurnOutcome, UnfinishedCall};
use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::{Cause, CauseKind, Effect, StopReason};
use allstop_log::MemoryLog;
use allstop_model::Reply;
use allstop_scope::WorkSpec;
use allstop_testkit::ToolFn;
use allstop_tools::ToolInvocation;
use parking_lot::Mutex;
use serde_json::json;

use crate::{agent, ended, history_on, model, records, root, tools};

const LIMIT: Duration = Duration::from_secs(1);

/// A remote call that never confirms a stop.
async fn elsewhere(call: ToolInvocation) -> String {
    let spec = WorkSpec::new(ItemKind::ToolCall, "elsewhere");
    let _call = call.scope.register_remote(spec, || {}).expect("it runs");
    std::future::pending().await
}

struct Watched {
    turn: TurnOutcome,
    events: Vec<AgentEvent>,
    records: Vec<SessionRecord>,
}

impl Watched {
    /// Outcome of a call in the log, with its exit code.
    fn record(&self, call: &str) -> (CallOutcome, Option<i32>) {
        let found = self.records.iter().find_map(|record| match record {
            SessionRecord::CallFinished {
                id,
                outcome,
                exit_code,
                ..
            } if id.as_str() == call => Some((*outcome, *exit_code)),
            _ => None,
        });
        found.expect("the call has its end in the log")
    }

    /// Outcome of a call in the events, with its exit code and the state of its remaining work.
    fn event(&self, call: &str) -> (CallOutcome, Option<i32>, Option<ItemState>) {
        let found = self.events.iter().find_map(|event| match event {
            AgentEvent::ToolFinished {
                call_id,
                outcome,
                exit_code,
                left,
                ..
            } if call_id.as_str() == call => Some((*outcome, *exit_code, left.clone())),
            _ => None,
        });
        found.expect("the call has its end in the events")
    }

    fn unfinished(&self) -> &[UnfinishedCall] {
        match self.events.last() {
            Some(AgentEvent::TurnEnded { unfinished, .. }) => unfinished,
            other => panic!("not the end of the turn: {other:?}"),
        }
    }
}

/// Runs a turn whose model calls all these tools in one step, with the ids `call_1_1`, `call_1_2` and so on. `stop_at`
/// names a call that is stopped when it starts.
async fn watched(list: Vec<ToolFn>, names: &[&str], stop_at: Option<&'static str>) -> Watched {
    let asks = names
        .iter()
        .enumerate()
        .fold(Reply::text(""), |reply, (n, name)| {
            reply.call(*name, json!({"n": n}))
        });
    let model = model(vec![asks, Reply::text("done")]);
    let log = Arc::new(MemoryLog::new());
    let scope = root();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let (running_tx, mut running) = tokio::sync::mpsc::unbounded_channel();
    let sink = EventSink::observer(move |event| {
        if let AgentEvent::ToolStarted { call_id, .. } = event
            && Some(call_id.as_str()) == stop_at
        {
            running_tx.send(()).expect("a receiver");
        }
        seen.lock().push(event.clone());
    });
    let history = history_on(Arc::clone(&log) as _).await;
    let agent = agent(&model).tools(tools(list)).build();
    let run = agent.start(&scope, RunRequest::new(history, "go"), sink);
    if stop_at.is_some() {
        running.recv().await.expect("the call starts");
        tokio::task::yield_now().await;
        let _stop = run.stop(Cause::new(CauseKind::User));
    }
    let (turn, _) = ended(run.finish().await.expect("a finished run"));
    let events = events.lock().clone();
    Watched {
        turn,
        events,
        records: records(&*log).await,
    }
}

#[tokio::test(start_paused = true)]
async fn exit_code_is_in_the_log_and_in_the_events() {
    let exits = ToolFn::new("exits", |call: ToolInvocation| async move {
        call.link.exited(3);
        "[exit code 3]".to_owned()
    });
    let plain = ToolFn::new("plain", |_| async { "fine".to_owned() });
    let seen = watched(vec![exits, plain], &["exits", "plain"], None).await;
    assert_eq!(seen.record("call_1_1"), (CallOutcome::Succeeded, Some(3)));
    assert_eq!(
        seen.event("call_1_1"),
        (CallOutcome::Succeeded, Some(3), None)
    );
    assert_eq!(seen.record("call_1_2"), (CallOutcome::Succeeded, None));
    assert_eq!(seen.event("call_1_2"), (CallOutcome::Succeeded, None, None));
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_is_reported_as_timed_out() {
    let hears = ToolFn::new("hears", |call: ToolInvocation| async move {
        call.scope.stopped_at("idle").await.to_string()
    });
    let seen = watched(vec![hears.timeout(LIMIT)], &["hears"], None).await;
    assert_eq!(seen.turn.stop_reason, StopReason::Completed);
    assert_eq!(seen.record("call_1_1"), (CallOutcome::TimedOut, None));
    assert_eq!(seen.event("call_1_1"), (CallOutcome::TimedOut, None, None));
}

#[tokio::test(start_paused = true)]
async fn call_that_outlives_its_timeout_is_not_reported_stopped() {
    let deaf = ToolFn::new("deaf", elsewhere).timeout(LIMIT);
    let seen = watched(vec![deaf], &["deaf"], None).await;
    assert_eq!(seen.record("call_1_1").0, CallOutcome::Unknown);
    let (outcome, _, left) = seen.event("call_1_1");
    assert_eq!(outcome, CallOutcome::Unknown);
    assert_eq!(left.expect("it may still run").as_str(), "unreachable");
}

#[tokio::test(start_paused = true)]
async fn receipt_lists_each_call_that_left_work() {
    let deaf = |name| ToolFn::new(name, elsewhere).timeout(LIMIT);
    let list = vec![deaf("one"), deaf("two")];
    let seen = watched(list, &["one", "two"], None).await;
    assert_eq!(seen.turn.stop_reason, StopReason::Completed);
    let receipt = seen.turn.receipt.expect("something is left");
    let mut left: Vec<&str> = receipt
        .items()
        .iter()
        .filter(|item| item.state.breaks_quiet())
        .map(|item| &*item.id)
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["call_1_1", "call_1_2"], "{receipt:?}");
    assert!(!receipt.quiet());
}

#[tokio::test(start_paused = true)]
async fn end_event_of_a_stopped_turn_has_the_state_of_each_call() {
    let hears = ToolFn::new("hears", |call: ToolInvocation| async move {
        call.scope.stopped_at("idle").await.to_string()
    });
    let list = vec![
        hears.effect(Effect::ReadOnly),
        ToolFn::new("deaf", elsewhere),
    ];
    let seen = watched(list, &["hears", "deaf"], Some("call_1_2")).await;
    assert_eq!(seen.turn.stop_reason, StopReason::Cancelled);
    let left: Vec<_> = seen
        .unfinished()
        .iter()
        .map(|call| (call.call_id.as_str(), call.state.as_str()))
        .collect();
    assert_eq!(left, [("call_1_1", "stopped"), ("call_1_2", "unreachable")]);
}

/// Returns the output in the events and the number of these events, all of which come before `last`.
fn output(seen: &Watched, last: impl Fn(&AgentEvent) -> bool) -> (String, usize) {
    let end = seen.events.iter().position(last).expect("the last event");
    let (mut all, mut count) = (String::new(), 0);
    for (at, event) in seen.events.iter().enumerate() {
        if let AgentEvent::ToolOutput { text, .. } = event {
            assert!(at < end, "{text:?} is behind the end");
            all.push_str(text);
            count += 1;
        }
    }
    (all, count)
}

#[tokio::test(start_paused = true)]
async fn chatty_call_has_few_events_and_all_of_its_output() {
    const LINES: u32 = 2_000;
    let chatty = ToolFn::new("chatty", |call: ToolInvocation| async move {
        for line in 0..LINES {
            call.link.output(format!("{line}\n"));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        call.link.output("the end");
        "said".to_owned()
    });
    let seen = watched(vec![chatty], &["chatty"], None).await;
    let finished = |event: &AgentEvent| matches!(event, AgentEvent::ToolFinished { .. });
    let (text, count) = output(&seen, finished);
    let lines = (0..LINES).map(|line| format!("{line}\n"));
    assert_eq!(text, lines.collect::<String>() + "the end");
    // In each of the two seconds, at most 20 events; then one more event for the rest of the output.
    assert!((20..=41).contains(&count), "{count} events");
}

#[tokio::test(start_paused = true)]
async fn held_output_is_sent_while_the_call_is_silent() {
    let (seen_tx, seen_rx) = tokio::sync::watch::channel(false);
    let silent = ToolFn::new("silent", move |call: ToolInvocation| {
        let mut seen = seen_rx.clone();
        async move {
            call.link.output("one ");
            call.link.output("two");
            seen.wait_for(|seen| *seen).await.expect("a sender");
            "seen".to_owned()
        }
    });
    let model = model(vec![
        Reply::text("").call("silent", json!({})),
        Reply::text("done"),
    ]);
    let sink = EventSink::observer(move |event| {
        if let AgentEvent::ToolOutput { text, .. } = event {
            seen_tx.send_replace(&**text == "two");
        }
    });
    let history = history_on(Arc::new(MemoryLog::new())).await;
    let agent = agent(&model)
        .tools(tools(vec![silent.timeout(LIMIT)]))
        .build();
    let scope = root();
    let run = agent.start(&scope, RunRequest::new(history, "go"), sink);
    let _ended = ended(run.finish().await.expect("a finished run"));
    let results = model.requests()[1].clone();
    assert!(format!("{results:?}").contains("\"seen\""), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn output_during_a_stop_comes_before_the_end_of_the_turn() {
    let last_words = ToolFn::new("last_words", |call: ToolInvocation| async move {
        call.scope.stopped_at("idle").await;
        call.link.output("not ");
        call.link.output("yet");
        "stopped".to_owned()
    });
    let seen = watched(vec![last_words], &["last_words"], Some("call_1_1")).await;
    assert_eq!(seen.turn.stop_reason, StopReason::Cancelled);
    let ended = |event: &AgentEvent| matches!(event, AgentEvent::TurnEnded { .. });
    assert_eq!(output(&seen, ended).0, "not yet");
}
